-- --predict: outputs for the rows of a file. The truths: the library's predict_step, the figures of an evaluation,
-- definitions in Lua; between both ways of predicting, every bit.
local tests = {}
local function add(name, f)
    tests[#tests + 1] = { name, function(t) f(t, t.load("tests/lua/predicted.lua")(t)) end }
end

add("outputs are those of the library's predict_step, also for rows that fill no batch", function(t, x)
    local p = x.trained("predict", x.MLP, { predict = true, lib = true })
    local driver, folder = p.folder .. "/outputs", t.temp()
    local made = t.run { "cc", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-I" .. p.folder, "-o", driver,
        "tests/e2e/outputs.c", p.folder .. "/liblooped.a", "-ljansson", "-lz", "-lm", "-pthread" }
    t.equal(made.status, 0, made.err)
    local rows = {}
    for line in host.read(x.data() .. "tiny.csv"):gmatch "[^\n]+" do
        local a, b, c, d = line:match "^([^,]+),([^,]+),([^,]+),([^,]+),"
        rows[#rows + 1] = string.pack("<ffff", a, b, c, d)
    end
    t.equal(#rows % 7 ~= 0, true)
    t.write(folder .. "/rows", table.concat(rows))
    local run = t.run { driver, x.newest(p), folder .. "/rows", "4", folder .. "/out",
        env = { "GAGEN_DATA=" .. t.root .. "/" .. x.data(), "GAGEN_TIMEOUT=300" } }
    t.equal(run.status, 0, run.err)
    local file = x.both(p, x.data() .. "tiny.csv")
    t.equal((x.read_npy(file)), "90, 3")
    t.equal(host.sha256(x.bytes_of(file)), host.sha256(host.read(folder .. "/out")))
end)

add("a file without targets, .csv, probabilities", function(t, x)
    local p = x.trained("predict", x.MLP, { predict = true, lib = true })
    local folder = t.temp()
    local whole = host.read(x.data() .. "tiny.csv")
    t.write(folder .. "/bare.csv", (whole:gsub(",%d+\n", "\n")))
    t.write(folder .. "/odd.csv", (whole:gsub(",%d+\n", ",nobody knows\n")))
    x.predict(p, x.data() .. "tiny.csv", folder .. "/a.npy")
    for _, name in ipairs { "bare", "odd" } do
        x.predict(p, folder .. "/" .. name .. ".csv", folder .. "/b.npy")
        t.equal(host.sha256(x.bytes_of(folder .. "/a.npy")), host.sha256(x.bytes_of(folder .. "/b.npy")))
    end
    local _, values = x.read_npy(folder .. "/a.npy")
    x.predict(p, folder .. "/bare.csv", folder .. "/a.csv")
    local head, rows = x.read_csv(folder .. "/a.csv")
    t.equal(head, "output_0,output_1,output_2")
    t.equal(#rows, 90)
    x.predict(p, folder .. "/bare.csv", folder .. "/p.csv", { "--probabilities" })
    local alone = x.alone(p, folder .. "/bare.csv", folder .. "/q.csv", { "--probabilities" })
    t.equal(alone.status, 0, alone.err)
    t.equal(host.read(folder .. "/p.csv"), host.read(folder .. "/q.csv"))
    local _, shares = x.read_csv(folder .. "/p.csv")
    for i, row in ipairs(rows) do
        local sum = 0
        for c = 1, 3 do
            t.equal(row[c], tonumber(("%.9g"):format(values[3 * i - 3 + c])))
            sum = sum + math.exp(row[c])
        end
        t.near(shares[i][1] + shares[i][2] + shares[i][3], 1, 1e-6)
        for c = 1, 3 do t.near(shares[i][c], math.exp(row[c]) / sum, 1e-6) end
    end
end)

-- The loss and the accuracy that an evaluation logs, from outputs and targets.
local function figures(rows, targets)
    local loss, hits = 0, 0
    for i, row in ipairs(rows) do
        local sum, best = 0, 1
        for c, x in ipairs(row) do
            sum = sum + math.exp(x)
            if x > row[best] then best = c end
        end
        loss = loss + math.log(sum) - row[targets[i] + 1]
        hits = hits + (best - 1 == targets[i] and 1 or 0)
    end
    return loss / #rows, hits / #rows
end

local DIGITS = [[
data       { "csv", train = "digits/digits.csv.gz", eval = "digits/digits.csv.gz", target = "last",
             scale = 1/16 }
batch      (16)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 12, seed = 1 }
eval       { every = 12, metrics = { "loss", "accuracy" } }
]]

add("the digits: loss and accuracy from the file are those of the evaluation; the plan is small", function(t, x)
    local p = x.trained("predict_digits", DIGITS)
    local eval = x.evaluated(p)
    t.equal(eval.rows, 1797)
    local folder = t.temp()
    local unpacked = t.shell("zcat " .. x.data() .. "digits/digits.csv.gz").out
    t.write(folder .. "/digits.csv", unpacked)
    local result = x.alone(p, folder .. "/digits.csv", folder .. "/out.csv")
    t.equal(result.status, 0, result.err)
    local _, rows = x.read_csv(folder .. "/out.csv")
    local targets = {}
    for class in unpacked:gmatch ",(%d+)\n" do targets[#targets + 1] = math.tointeger(tonumber(class)) end
    local loss, accuracy = figures(rows, targets)
    t.near(loss, eval.loss, 1e-6 * eval.loss)
    t.near(accuracy, eval.accuracy, 1e-9)
    assert(accuracy > 0.3, accuracy)
    x.both(p, x.data() .. "digits/digits.csv.gz")
    local plan = dofile("tests/lua/json.lua").read(host.read(p.folder .. "/plan.json")).predict
    t.equal(plan.weight_bytes, 4 * (64 * 64 + 64 + 10 * 64 + 16))
    t.equal(plan.value_bytes, 4 * (64 + 16))
end)

local function mnist(t, files)
    local root = t.environment "GAGEN_DATA"
    for _, file in ipairs(files) do
        if not root or host.exists(root .. "/mnist/" .. file) ~= "file" then t.not_run("GAGEN_DATA has no mnist") end
    end
    return root .. "/mnist/"
end

add("MNIST: accuracy from the file is that of the evaluation", function(t, x)
    local root = mnist(t, { "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz" })
    local formats = t.load("tests/lua/formats.lua")(t)
    assert(host.link(host.absolute(root), formats.programs.folder() .. "/data/handwritten"))
    local p = x.trained("predict_mnist", [[
data       { "idx", train = { "handwritten/t10k-images*", "handwritten/t10k-labels*" },
             eval = { "handwritten/t10k-images*", "handwritten/t10k-labels*" }, scale = 1/255,
             mean = { 0.1307 }, std = { 0.3081 } }
batch      (32)
model      { flatten {}, linear "fc1" { 16 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 3e-3 }
train      { updates = 12, seed = 1 }
eval       { every = 12, metrics = { "loss", "accuracy" } }
]])
    local eval = x.evaluated(p)
    local folder = t.temp()
    local result = x.alone(p, root .. "t10k-images-idx3-ubyte.gz", folder .. "/out.csv")
    t.equal(result.status, 0, result.err)
    local _, rows = x.read_csv(folder .. "/out.csv")
    local labels = t.shell(("zcat %st10k-labels-idx1-ubyte.gz | tail -c +9 | od -An -v -tu1 -w1"):format(root)).out
    local targets = {}
    for label in labels:gmatch "%d+" do targets[#targets + 1] = math.tointeger(tonumber(label)) end
    t.equal(#rows, 10000)
    local loss, accuracy = figures(rows, targets)
    t.near(loss, eval.loss, 1e-6 * eval.loss)
    t.near(accuracy, eval.accuracy, 1e-9)
    assert(accuracy > 0.3, accuracy)
end)

local HOUSES = [[
data       { "csv", train = "predict/houses.csv", target = "price", drop = { "id" }, category = { "city", "kind" },
             ids = { "kind" }, standardize = true, split = { fold = 1, of = 4, seed = 2 } }
batch      (4)
model(function(batch)
    local x = concat { axis = 2 } (batch.input, embedding "kind" { 3, 2 } (batch.kind))
    return pick { axis = 2, index = 1 } (linear "out" { 1 } (x))
end)
loss       "mse"
optimizer  { "sgd", lr = 1e-3 }
train      { updates = 12, seed = 1 }
]]

-- Rows of 24 houses, { city, area, id, price, kind }.
local function houses()
    local list = {}
    for i = 1, 24 do
        list[i] = { ({ "york", "bath", '"new, town"' })[i % 3 + 1], 40 + i * i % 17, i, 100 + 7 * (i % 5),
            ({ "flat", "hut", "barn" })[i % 4 % 3 + 1] }
    end
    return list
end

local function houses_text(columns, list)
    local names, lines = { "city", "area", "id", "price", "kind" }, {}
    local function line(row)
        local cells = {}
        for i, c in ipairs(columns) do cells[i] = tostring(row[c]) end
        lines[#lines + 1] = table.concat(cells, ",") .. "\n"
    end
    line(names)
    for _, row in ipairs(list) do line(row) end
    return table.concat(lines)
end

-- The output of a row by its definition, from the tables in rows.c and the parameters.
local function house_output(rows_c, tensors, row)
    local function id(name, text)
        local i = name == "city" and 1 or 5
        return tonumber(rows_c:match(("CATEGORY_%d%%[%%].-{%q, (%%d+)}"):format(i, (text:gsub('"', "")))))
    end
    local mean, std = rows_c:match '"area", .input = 1, .mean = ([%d.e+-]+), .std = ([%d.e+-]+)'
    local x = { id("city", row[1]), (row[2] - mean) / std }
    local kind = id("kind", row[5])
    for c = 1, 2 do x[2 + c] = tensors:get("kind.weight"):element(2 * kind + c - 1) end
    local y = tensors:get("out.bias"):element(0)
    for c = 1, 4 do y = y + x[c] * tensors:get("out.weight"):element(c - 1) end
    return y
end

local ALL, BARE = { 1, 2, 3, 4, 5 }, { 1, 2, 3, 5 }

add("standardised columns and categories are those of training; the target's column may be gone", function(t, x)
    local formats = t.load("tests/lua/formats.lua")(t)
    formats.write("predict/houses.csv", houses_text(ALL, houses()))
    local p = x.trained("predict_houses", HOUSES)
    local folder = t.temp()
    t.write(folder .. "/bare.csv", houses_text(BARE, houses()))
    local all = x.both(p, x.data() .. "predict/houses.csv")
    local bare = x.both(p, folder .. "/bare.csv")
    t.equal(host.sha256(x.bytes_of(all)), host.sha256(x.bytes_of(bare)))
    local shape, values = x.read_npy(bare)
    t.equal(shape, "24,")
    local tensors = require "command.safetensors".open(x.newest(p) .. "/model.safetensors")
    local rows_c = host.read(p.folder .. "/rows.c")
    for i, row in ipairs(houses()) do t.near(values[i], house_output(rows_c, tensors, row), 1e-4) end
    -- a file in the format of the spec's data, but wrong
    local wrong = {
        { (houses_text(BARE, houses()):gsub("york", "leeds", 1)), "wrong.csv:4: column 1: found 'leeds', expected" },
        { (houses_text(BARE, houses()):gsub("area", "size", 1)),
            "wrong.csv:1: column 2: found 'size', expected 'area'" },
        { houses_text({ 1, 2 }, houses()), "wrong.csv: 2 columns found, expected 5, or 4 without the target" },
        { houses_text(BARE, houses()) .. "york,40,1,flat,8\n", "wrong.csv:26: more than 4 columns found" },
        { "", "wrong.csv: no rows found" }, { houses_text(BARE, {}), "wrong.csv: no rows found" },
    }
    for _, case in ipairs(wrong) do
        t.write(folder .. "/wrong.csv", case[1])
        t.write(folder .. "/out.npy", "what was there")
        local result = x.predict(p, folder .. "/wrong.csv", folder .. "/out.npy", { status = 1 })
        t.contains(result.err, case[2])
        local alone = x.alone(p, folder .. "/wrong.csv", folder .. "/out.npy")
        t.equal(alone.status, 1)
        t.contains(alone.err, case[2])
        t.equal(host.read(folder .. "/out.npy"), "what was there")
        t.equal(host.exists(folder .. "/out.npy.tmp"), false)
    end
    local result = x.predict(p, folder .. "/bare.csv", folder .. "/o.csv", { "--probabilities", status = 1 })
    t.contains(result.err, "--probabilities: the loss is mse, whose outputs are no logits")
end)

add("images, arrays, tensors: files of any number of rows, without targets", function(t, x)
    local formats = t.load("tests/lua/formats.lua")(t)
    local function pixel(i) return i * 37 % 251 end
    formats.write("predict/images", formats.idx({ 20, 6, 5 }, pixel))
    formats.write("predict/labels", formats.idx({ 20 }, function(i) return i % 3 end))
    local rest = [[
batch      (6)
model      { conv2d "c" { 4, 3, padding = 1 }, batchnorm "bn" { rows = 3 }, relu {}, maxpool2d { 2 }, flatten {},
             linear "fc" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 1e-2 }
train      { updates = 12, seed = 1 }
]]
    local folder = t.temp()
    local p = x.trained("predict_images",
        'data { "idx", train = { "predict/images", "predict/labels" }, scale = 1/255, mean = { 0.3 }, std = { 2 } }\n'
        .. rest)
    t.write(folder .. "/nine", formats.idx({ 9, 6, 5 }, pixel))
    local nine = x.both(p, folder .. "/nine")
    t.equal((x.read_npy(nine)), "9, 3")
    t.equal(x.bytes_of(nine), x.bytes_of(x.both(p, x.data() .. "predict/images")):sub(1, 9 * 12))
    t.write(folder .. "/wide", formats.idx({ 9, 5, 6 }, pixel))
    t.contains(x.predict(p, folder .. "/wide", folder .. "/o.npy", { status = 1 }).err, "wide: 9 rows of 1 x 5 x 6, "
        .. "expected 9 of 1 x 6 x 5")
    t.contains(x.predict(p, folder .. "/none", folder .. "/o.npy", { status = 1 }).err, "none: cannot be opened: ")

    local values, targets = {}, {}
    for i = 1, 20 * 4 do values[i] = math.sin(i) end
    for i = 1, 20 do targets[i] = i % 3 end
    formats.write("predict/x.npy", formats.npy("<f4", "<f", { 20, 4 }, values))
    formats.write("predict/y.npy", formats.npy("<i4", "<i4", { 20 }, targets))
    formats.write("predict/rows.safetensors", formats.tensors {
        { "input", "F32", "<f", { 20, 4 }, values }, { "target", "I32", "<i4", { 20 }, targets } })
    local small = rest:gsub("model.-flatten {},\n", "model {")
    local arrays = x.trained("predict_npy", 'data { "npy", train = { "predict/x.npy", "predict/y.npy" } }\n' .. small)
    local tensors = x.trained("predict_tensors", 'data { "tensors", train = "predict/rows.safetensors" }\n' .. small)
    local some = table.move(values, 1, 20, 1, {})
    t.write(folder .. "/x.npy", formats.npy("<f4", "<f", { 5, 4 }, some))
    t.write(folder .. "/x.safetensors", formats.tensors { { "input", "F32", "<f", { 5, 4 }, some } })
    local a, b = x.both(arrays, folder .. "/x.npy"), x.both(tensors, folder .. "/x.safetensors")
    t.equal((x.read_npy(a)), "5, 3")
    t.equal(host.sha256(x.bytes_of(a)), host.sha256(x.bytes_of(b)))
    t.write(folder .. "/z.npy", formats.npy("<f4", "<f", { 4, 5 }, some))
    t.contains(x.predict(arrays, folder .. "/z.npy", folder .. "/o.npy", { status = 1 }).err,
        "z.npy: 4 rows of 5 F32, expected 4 of 4 F32")
    t.write(folder .. "/z.safetensors", formats.tensors { { "other", "F32", "<f", { 5, 4 }, some } })
    t.contains(x.predict(tensors, folder .. "/z.safetensors", folder .. "/o.npy", { status = 1 }).err,
        "z.safetensors: has no tensor 'input'")
end)

add("averages that are divided over ranks: all bring them together, the first one predicts", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("predict_averages", [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (3)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, ema = 0.9 }
train      { updates = 4 }
parallel   "zero1"
]], { comm = "mpi" })
    local folder, rows, written = t.temp(), t.root .. "/" .. programs.folder() .. "/data/tiny.csv", {}
    programs.train(p, { ranks = 2, "--checkpoint", folder })
    for ranks = 1, 2 do
        local out, weights = ("%s/%d.npy"):format(folder, ranks), ("%s/%d.bin"):format(folder, ranks)
        local before = { "timeout", "60" }
        programs.train(p, { ranks = ranks, before = before, "--checkpoint", folder, "--predict", rows, "--out", out })
        programs.train(p, { ranks = ranks, before = before, "--checkpoint", folder, "--save-weights", weights })
        written[ranks] = { host.sha256(host.read(out)), host.sha256(host.read(weights)) }
    end
    t.equal(written[2], written[1])
end)

return tests
