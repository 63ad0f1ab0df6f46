-- --predict, and the program and library that only predict. The truths: the library's predict_step, the figures of an
-- evaluation, definitions in Lua; between the two ways of predicting, every bit.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local MLP = [[
name       "looped"
data       { "csv", train = "tiny.csv", eval = "tiny.csv", target = "last", shuffle = false }
batch      (7)
accumulate { 2, tail = "flush" }
model      { linear "fc1" { 9 }, tanh {}, dropout(0.2), linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, ema = 0.5 }
train      { updates = 12, seed = 3 }
eval       { every = 12, metrics = { "loss", "accuracy" } }
]]

-- What .npy holds: the shape as text, and the numbers.
local function read_npy(t, path)
    local text = assert(host.read(path))
    t.equal(text:sub(1, 8), "\x93NUMPY\1\0")
    local size = string.unpack("<I2", text, 9)
    t.equal((10 + size) % 64, 0)
    local shape = text:sub(11, 10 + size):match("^{'descr': '<f4', 'fortran_order': False, 'shape': %(([%d, ]+)%), } *\n$")
    local values, at = {}, 11 + size
    while at <= #text do values[#values + 1], at = string.unpack("<f", text, at) end
    return shape, values
end

-- The header and the rows of a .csv, as numbers.
local function read_csv(path)
    local lines = {}
    for line in assert(host.read(path)):gmatch("([^\n]*)\n") do lines[#lines + 1] = line end
    local rows = {}
    for i = 2, #lines do
        rows[i - 1] = {}
        for cell in lines[i]:gmatch("[^,]+") do table.insert(rows[i - 1], tonumber(cell)) end
    end
    return lines[1], rows
end

-- Bytes of the values in .npy.
local function bytes_of(path)
    local text = assert(host.read(path))
    return text:sub(11 + string.unpack("<I2", text, 9))
end

local function data(programs) return programs.folder() .. "/data/" end

-- Trains a program with `make predict` for some cycles; returns it with its checkpoints.
local function trained(t, name, text, how)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build(name, text, how or { predict = true })
    p.own = t.root .. "/" .. p.folder .. "/" .. (text:match 'name%s*"(%w+)"' or name) .. "_predict"
    p.checkpoint = programs.train(p, { "--cycles", 12 }).checkpoint
    return programs, p
end

-- Runs train --predict; o: further words, status.
local function predict(programs, p, file, out, o)
    o = o or {}
    local words = { "--predict", file, "--out", out, "--checkpoint", p.checkpoint, status = o.status, env = o.env }
    return programs.train(p, table.move(o, 1, #o, #words + 1, words))
end

-- Runs the program that only predicts, with weights of the checkpoint.
local function predict_alone(t, programs, p, file, out, o)
    local weights = t.temp() .. "/weights.bin"
    programs.train(p, { "--save-weights", weights, "--checkpoint", p.checkpoint })
    local result = t.run(table.move(o or {}, 1, #(o or {}), 6, { p.own, file, out, "--weights", weights }))
    return result, weights
end

-- Both ways of predicting must write the same bytes; returns them.
local function both(t, programs, p, file)
    local folder = t.temp()
    predict(programs, p, file, folder .. "/a.npy")
    local result = predict_alone(t, programs, p, file, folder .. "/b.npy")
    t.equal(result.status, 0, result.err)
    t.equal(host.sha256(bytes_of(folder .. "/a.npy")), host.sha256(bytes_of(folder .. "/b.npy")))
    return folder .. "/a.npy"
end

add("outputs are those of the library's predict_step, also for rows that fill no batch", function(t)
    local programs, p = trained(t, "predict", MLP, { predict = true, lib = true })
    local driver, folder = p.folder .. "/outputs", t.temp()
    local made = t.run { "cc", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-I" .. p.folder, "-o", driver,
        "tests/e2e/outputs.c", p.folder .. "/liblooped.a", "-ljansson", "-lz", "-lm", "-pthread" }
    t.equal(made.status, 0, made.err)
    local rows = {}
    for line in host.read(data(programs) .. "tiny.csv"):gmatch "[^\n]+" do
        local a, b, c, d = line:match "^([^,]+),([^,]+),([^,]+),([^,]+),"
        rows[#rows + 1] = string.pack("<ffff", a, b, c, d)
    end
    t.equal(#rows % 7 ~= 0, true)
    t.write(folder .. "/rows", table.concat(rows))
    local newest = p.checkpoint .. "/" .. host.list(p.checkpoint)[#host.list(p.checkpoint)]
    local run = t.run { driver, newest, folder .. "/rows", "4", folder .. "/out",
        env = { "GAGEN_DATA=" .. t.root .. "/" .. data(programs), "GAGEN_TIMEOUT=300" } }
    t.equal(run.status, 0, run.err)
    local file = both(t, programs, p, data(programs) .. "tiny.csv")
    t.equal((read_npy(t, file)), "90, 3")
    t.equal(host.sha256(bytes_of(file)), host.sha256(host.read(folder .. "/out")))
end)

add("a file without targets, .csv, probabilities", function(t)
    local programs, p = trained(t, "predict", MLP, { predict = true, lib = true })
    local folder = t.temp()
    local whole = host.read(data(programs) .. "tiny.csv")
    t.write(folder .. "/bare.csv", (whole:gsub(",%d+\n", "\n")))
    t.write(folder .. "/odd.csv", (whole:gsub(",%d+\n", ",nobody knows\n")))
    predict(programs, p, data(programs) .. "tiny.csv", folder .. "/a.npy")
    for _, name in ipairs { "bare", "odd" } do
        predict(programs, p, folder .. "/" .. name .. ".csv", folder .. "/b.npy")
        t.equal(host.sha256(bytes_of(folder .. "/a.npy")), host.sha256(bytes_of(folder .. "/b.npy")))
    end
    local _, values = read_npy(t, folder .. "/a.npy")
    predict(programs, p, folder .. "/bare.csv", folder .. "/a.csv")
    local head, rows = read_csv(folder .. "/a.csv")
    t.equal(head, "output_0,output_1,output_2")
    t.equal(#rows, 90)
    predict(programs, p, folder .. "/bare.csv", folder .. "/p.csv", { "--probabilities" })
    local alone = predict_alone(t, programs, p, folder .. "/bare.csv", folder .. "/q.csv", { "--probabilities" })
    t.equal(alone.status, 0, alone.err)
    t.equal(host.read(folder .. "/p.csv"), host.read(folder .. "/q.csv"))
    local _, shares = read_csv(folder .. "/p.csv")
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

add("the digits: loss and accuracy from the file are those of the evaluation; the plan is small", function(t)
    local programs, p = trained(t, "predict_digits", DIGITS)
    local eval
    for _, event in ipairs(programs.events(p, { "--eval", "--resume", "latest", "--checkpoint", p.checkpoint })) do
        eval = event.event == "eval" and event or eval
    end
    t.equal(eval.rows, 1797)
    local folder = t.temp()
    local unpacked = t.shell("zcat " .. data(programs) .. "digits/digits.csv.gz").out
    t.write(folder .. "/digits.csv", unpacked)
    local result = predict_alone(t, programs, p, folder .. "/digits.csv", folder .. "/out.csv")
    t.equal(result.status, 0, result.err)
    local _, rows = read_csv(folder .. "/out.csv")
    local targets = {}
    for class in unpacked:gmatch ",(%d+)\n" do targets[#targets + 1] = math.tointeger(tonumber(class)) end
    local loss, accuracy = figures(rows, targets)
    t.near(loss, eval.loss, 1e-6 * eval.loss)
    t.near(accuracy, eval.accuracy, 1e-9)
    assert(accuracy > 0.3, accuracy)
    both(t, programs, p, data(programs) .. "digits/digits.csv.gz")
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

add("MNIST: accuracy from the file is that of the evaluation", function(t)
    local root = mnist(t, { "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz" })
    local formats = t.load("tests/lua/formats.lua")(t)
    assert(host.link(host.absolute(root), formats.programs.folder() .. "/data/handwritten"))
    local programs, p = trained(t, "predict_mnist", [[
data       { "idx", train = { "handwritten/t10k-images*", "handwritten/t10k-labels*" },
             eval = { "handwritten/t10k-images*", "handwritten/t10k-labels*" }, scale = 1/255, mean = { 0.1307 }, std = { 0.3081 } }
batch      (32)
model      { flatten {}, linear "fc1" { 16 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 3e-3 }
train      { updates = 12, seed = 1 }
eval       { every = 12, metrics = { "loss", "accuracy" } }
]])
    local eval
    for _, event in ipairs(programs.events(p, { "--eval", "--resume", "latest", "--checkpoint", p.checkpoint })) do
        eval = event.event == "eval" and event or eval
    end
    local folder = t.temp()
    local result = predict_alone(t, programs, p, root .. "t10k-images-idx3-ubyte.gz", folder .. "/out.csv")
    t.equal(result.status, 0, result.err)
    local _, rows = read_csv(folder .. "/out.csv")
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

add("standardised columns and categories are those of training; the target's column may be gone", function(t)
    local formats = t.load("tests/lua/formats.lua")(t)
    formats.write("predict/houses.csv", houses_text(ALL, houses()))
    local programs, p = trained(t, "predict_houses", HOUSES)
    local folder = t.temp()
    t.write(folder .. "/bare.csv", houses_text(BARE, houses()))
    local all = both(t, programs, p, data(programs) .. "predict/houses.csv")
    local bare = both(t, programs, p, folder .. "/bare.csv")
    t.equal(host.sha256(bytes_of(all)), host.sha256(bytes_of(bare)))
    local shape, values = read_npy(t, bare)
    t.equal(shape, "24,")
    local newest = p.checkpoint .. "/" .. host.list(p.checkpoint)[#host.list(p.checkpoint)]
    local tensors = require "command.safetensors".open(newest .. "/model.safetensors")
    local rows_c = host.read(p.folder .. "/rows.c")
    for i, row in ipairs(houses()) do t.near(values[i], house_output(rows_c, tensors, row), 1e-4) end
    -- a file in the format of the spec's data, but wrong
    local wrong = {
        { (houses_text(BARE, houses()):gsub("york", "leeds", 1)), "wrong.csv:4: column 1: found 'leeds', expected" },
        { (houses_text(BARE, houses()):gsub("area", "size", 1)), "wrong.csv:1: column 2: found 'size', expected 'area'" },
        { houses_text({ 1, 2 }, houses()), "wrong.csv: 2 columns found, expected 5, or 4 without the target" },
        { houses_text(BARE, houses()) .. "york,40,1,flat,8\n", "wrong.csv:26: more than 4 columns found" },
        { "", "wrong.csv: no rows found" }, { houses_text(BARE, {}), "wrong.csv: no rows found" },
    }
    for _, case in ipairs(wrong) do
        t.write(folder .. "/wrong.csv", case[1])
        t.write(folder .. "/out.npy", "what was there")
        local result = predict(programs, p, folder .. "/wrong.csv", folder .. "/out.npy", { status = 1 })
        t.contains(result.err, case[2])
        local alone = predict_alone(t, programs, p, folder .. "/wrong.csv", folder .. "/out.npy")
        t.equal(alone.status, 1)
        t.contains(alone.err, case[2])
        t.equal(host.read(folder .. "/out.npy"), "what was there")
        t.equal(host.exists(folder .. "/out.npy.tmp"), false)
    end
    local result = predict(programs, p, folder .. "/bare.csv", folder .. "/o.csv", { "--probabilities", status = 1 })
    t.contains(result.err, "--probabilities: the loss is mse, whose outputs are no logits")
end)

add("images, arrays, tensors: files of any number of rows, without targets", function(t)
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
    local programs, p = trained(t, "predict_images",
        'data { "idx", train = { "predict/images", "predict/labels" }, scale = 1/255, mean = { 0.3 }, std = { 2 } }\n' .. rest)
    t.write(folder .. "/nine", formats.idx({ 9, 6, 5 }, pixel))
    local nine = both(t, programs, p, folder .. "/nine")
    t.equal((read_npy(t, nine)), "9, 3")
    t.equal(bytes_of(nine), bytes_of(both(t, programs, p, data(programs) .. "predict/images")):sub(1, 9 * 12))
    t.write(folder .. "/wide", formats.idx({ 9, 5, 6 }, pixel))
    t.contains(predict(programs, p, folder .. "/wide", folder .. "/o.npy", { status = 1 }).err, "wide: 9 rows of 1 x 5 x 6, "
        .. "expected 9 of 1 x 6 x 5")
    t.contains(predict(programs, p, folder .. "/none", folder .. "/o.npy", { status = 1 }).err, "none: cannot be opened: ")

    local values, targets = {}, {}
    for i = 1, 20 * 4 do values[i] = math.sin(i) end
    for i = 1, 20 do targets[i] = i % 3 end
    formats.write("predict/x.npy", formats.npy("<f4", "<f", { 20, 4 }, values))
    formats.write("predict/y.npy", formats.npy("<i4", "<i4", { 20 }, targets))
    formats.write("predict/rows.safetensors", formats.tensors {
        { "input", "F32", "<f", { 20, 4 }, values }, { "target", "I32", "<i4", { 20 }, targets } })
    local small = rest:gsub("model.-flatten {},\n", "model {")
    local _, arrays = trained(t, "predict_npy", 'data { "npy", train = { "predict/x.npy", "predict/y.npy" } }\n' .. small)
    local _, tensors = trained(t, "predict_tensors", 'data { "tensors", train = "predict/rows.safetensors" }\n' .. small)
    local some = table.move(values, 1, 20, 1, {})
    t.write(folder .. "/x.npy", formats.npy("<f4", "<f", { 5, 4 }, some))
    t.write(folder .. "/x.safetensors", formats.tensors { { "input", "F32", "<f", { 5, 4 }, some } })
    local a, b = both(t, programs, arrays, folder .. "/x.npy"), both(t, programs, tensors, folder .. "/x.safetensors")
    t.equal((read_npy(t, a)), "5, 3")
    t.equal(host.sha256(bytes_of(a)), host.sha256(bytes_of(b)))
    t.write(folder .. "/z.npy", formats.npy("<f4", "<f", { 4, 5 }, some))
    t.contains(predict(programs, arrays, folder .. "/z.npy", folder .. "/o.npy", { status = 1 }).err,
        "z.npy: 4 rows of 5 F32, expected 4 of 4 F32")
    t.write(folder .. "/z.safetensors", formats.tensors { { "other", "F32", "<f", { 5, 4 }, some } })
    t.contains(predict(programs, tensors, folder .. "/z.safetensors", folder .. "/o.npy", { status = 1 }).err,
        "z.safetensors: has no tensor 'input'")
end)

local LINE = ("the quick brown fox jumps over the lazy dog. "):rep(9)

local GPT = [[
data       { "text", train = "predict/line.txt", context = 8, split = { eval = 4 } }
batch      (5)
model      { embedding "wte" { 28, 24 }, positions "wpe" { 8 },
             times(2) "h" {
                 residual { layernorm "ln" {}, linear "q" { 72 }, attend { heads = 2, causal = true, dropout = 0.2 },
                            linear "proj" { 24 } },
                 residual { layernorm "ln2" {}, linear "up" { 50 }, gelu { "tanh" }, dropout(0.1),
                            linear "down" { 24 } } },
             layernorm "ln_f" {}, %s }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, groups = { { "h.0.*", frozen = true } } }
train      { updates = 12, seed = 3 }
]]

local function gpt(t, name, head, more, options)
    t.load("tests/lua/formats.lua")(t).write("predict/line.txt", LINE)
    return trained(t, name, GPT:format(head) .. (more or ""), { predict = true, options = options })
end

add("a language model: an output at each position; the ids that fill no window are left out", function(t)
    local programs, p = gpt(t, "predict_gpt", 'linear "head" { 28 }')
    local folder = t.temp()
    t.write(folder .. "/text", LINE:sub(1, 8 * 6 + 3))
    local file = both(t, programs, p, folder .. "/text")
    t.equal((read_npy(t, file)), "6, 8, 28")
    local said = predict(programs, p, folder .. "/text", folder .. "/o.csv", { "--resume", "latest" }).err
    t.contains(said, "text: the last 3 ids fill no window of 8, and are left out")
    t.contains(read_csv(folder .. "/o.csv"), "output_0_0,output_0_1,")
    t.contains(host.read(folder .. "/o.csv"):match "^[^\n]+", ",output_7_27")
    t.write(folder .. "/text", "THE")
    t.contains(predict(programs, p, folder .. "/text", folder .. "/o.csv", { status = 1 }).err, "3 ids give no window of 8")
    t.write(folder .. "/text", "THE QUICK")
    t.contains(predict(programs, p, folder .. "/text", folder .. "/o.csv", { status = 1 }).err, "byte 0x54 at offset 0")
end)

add("in 16 bits, and with logits that are never whole, which make predict has whole", function(t)
    -- some profiles compute products of bf16 in blocks, where the order of a sum is another
    local programs, p = gpt(t, "predict_half", 'unembed { "wte" }', 'precision "bf16"\n', { "--march", "generic" })
    local folder = t.temp()
    t.write(folder .. "/text", LINE:sub(1, 8 * 3))
    both(t, programs, p, folder .. "/text")
    local _, chunked = gpt(t, "predict_chunked", 'unembed { "wte" }', 'memory { logits = "chunked", logits_rows = 20 }\n')
    local _, whole = gpt(t, "predict_whole", 'unembed { "wte" }')
    t.contains(predict(programs, chunked, folder .. "/text", folder .. "/o.npy", { status = 1 }).err,
        "--predict: the output is never whole in memory: use make predict, or memory { logits = \"whole\" }")
    local result = predict_alone(t, programs, chunked, folder .. "/text", folder .. "/a.npy")
    t.equal(result.status, 0, result.err)
    local alone = predict_alone(t, programs, whole, folder .. "/text", folder .. "/b.npy")
    t.equal(alone.status, 0, alone.err)
    t.equal(host.sha256(host.read(folder .. "/a.npy")), host.sha256(host.read(folder .. "/b.npy")))
end)

local NET = [[
model(function(batch)
    local x = reshape { 2, 6, 4 } (linear "planes" { 48 } (batch.input))
    x = silu(conv2d "a" { 6, 3, stride = 2, padding = 1 } (x)) + conv2d "b" { 6, 1, stride = 2 } (x)
    x = flatten {} (avgpool2d { "global" } (batchnorm "bn" {} (conv2d "c" { 6, 3, groups = 3, padding = 1 } (x))))
    local gate = silu {} (linear "gate" { 16 } (x))
    return linear "fc" { 3 } (rmsnorm "rms" {} (gate * linear "up" { 16 } (x)))
end)]]

add("other types, merged and joint layers, planes: the same bits", function(t)
    local rest = MLP:gsub('name[^\n]*\n', ""):gsub("model[^\n]*\n", function() return NET .. "\n" end)
    for i, more in ipairs { "", 'precision "f64"\n', 'precision "f16"\nscaler {}\n' } do
        if i == 1 or t.all then
            local programs, p = trained(t, "predict_net" .. i, rest .. more)
            both(t, programs, p, data(programs) .. "tiny.csv")
        end
    end
end)

-- A device: nothing but the header, the weights as an array, and a few rows.
local DEVICE = [[
#define LOOPED_PREDICT_IMPLEMENTATION
#include "looped_predict.h"
#include "weights.h"
#include <stdio.h>

int main(void) {
    static float memory[LOOPED_PREDICT_MEMORY / sizeof(float)], output[3 * LOOPED_PREDICT_OUTPUT];
    static const float input[3 * 4] = { %s };
    const looped_predict_rows rows = {.input = input};
    if (looped_predict_check(looped_predict_weights, sizeof looped_predict_weights) != 0) return 1;
    looped_predict(looped_predict_weights, memory, &rows, 3, output);
    for (int i = 0; i < 3 * LOOPED_PREDICT_OUTPUT; i++) printf("%%.9g\n", output[i]);
    return 0;
}
]]

-- Compiled for the oldest processor of the kind, a program has no multiply-adds, as the library with cc alone.
add("the library builds with cc alone; with the program's flags outputs are the same bits", function(t)
    local programs, p = trained(t, "predict_plain", MLP, { predict = true, options = { "--march", "generic" } })
    local folder, numbers, count = t.temp(), {}, 0
    for line in host.read(data(programs) .. "tiny.csv"):gmatch "[^\n]+" do
        count = count + 1
        if count <= 3 then numbers[count] = line:match "^(.*),%d+$":gsub("([%d.]+)", "%1f") end
    end
    programs.train(p, { "--save-weights", folder .. "/weights.h", "--checkpoint", p.checkpoint })
    t.write(folder .. "/device.c", DEVICE:format(table.concat(numbers, ", ")))
    local built = t.shell(("cd %s && cp %s/looped_predict.h . && cc -std=c11 -Wall -Wextra -Wpedantic -Werror -c device.c "
        .. "&& cc -o device device.o -lm && ./device"):format(folder, t.root .. "/" .. p.folder))
    t.equal(built.status, 0, built.out .. built.err)
    t.write(folder .. "/face.cc", '#include "looped_predict.h"\nint main() { return looped_predict_check(0, 1) + 1; }\n')
    t.equal(t.shell(("cd %s && c++ -Wall -Wextra -Werror -c face.cc"):format(folder)).status, 0)
    predict(programs, p, data(programs) .. "tiny.csv", folder .. "/o.csv")
    local _, rows = read_csv(folder .. "/o.csv")
    local i = 0
    for line in built.out:gmatch "[^\n]+" do
        t.equal(tonumber(line), rows[i // 3 + 1][i % 3 + 1])
        i = i + 1
    end
    t.equal(i, 9)
    local text = host.read(p.folder .. "/looped_predict.h")
    for _, word in ipairs { "_dx", "_dw", "\n#include \"", "adamw", "malloc", "pthread" } do
        t.equal(text:find(word, 1, true), nil, word)
    end
end)

add("no checkpoint, weights of others or damaged ones, options", function(t)
    local programs, p = trained(t, "predict", MLP, { predict = true, lib = true })
    local folder, file = t.temp(), data(programs) .. "tiny.csv"
    local empty = { checkpoint = t.temp() }
    local function refused(words, message)
        words.status = 1
        t.contains(programs.train(p, words).err, message)
    end
    refused({ "--predict", file, "--out", folder .. "/a.npy", "--checkpoint", empty.checkpoint },
        "; train first, or name parameters with --init")
    refused({ "--save-weights", folder .. "/w", "--checkpoint", empty.checkpoint }, "--save-weights: ")
    refused({ "--predict", file }, "--predict: given without --out, expected both")
    refused({ "--out", file }, "--out: given without --predict, expected both")
    refused({ "--probabilities" }, "--probabilities: given without --predict, expected both")
    refused({ "--predict", file, "--out", "a.npy", "--eval" }, "--predict: given beside --eval, one of the two expected")
    refused({ "--predict", file, "--out", "a.npy", "--plot" }, "--plot: given beside --predict, which does not train")
    refused({ "--predict", file, "--out", folder .. "/a.txt", "--checkpoint", p.checkpoint },
        "a.txt: expected a name that ends in .npy or .csv")
    refused({ "--predict", file, "--out", folder .. "/none/a.npy", "--checkpoint", p.checkpoint }, "cannot be created")
    local init = p.checkpoint .. "/" .. host.list(p.checkpoint)[#host.list(p.checkpoint)] .. "/model.safetensors"
    programs.train(p, { "--predict", file, "--out", folder .. "/i.npy", "--init", init })
    local _, weights = predict_alone(t, programs, p, file, folder .. "/a.npy")
    local bytes = host.read(weights)
    local function alone(text, message)
        t.write(folder .. "/w.bin", text)
        local result = t.run { p.own, file, folder .. "/b.npy", "--weights", folder .. "/w.bin" }
        t.equal(result.status, 1)
        t.contains(result.err, message)
        t.equal(host.exists(folder .. "/b.npy"), false)
    end
    alone(bytes:sub(1, -5), "w.bin: is no file of weights of this model")
    alone("x", "w.bin: is no file of weights of this model")
    alone(bytes:sub(1, 8):reverse() .. bytes:sub(9), "w.bin: is no file of weights of this model")
    alone(bytes:sub(1, 99) .. string.char(bytes:byte(100) ~ 1) .. bytes:sub(101), "w.bin: is damaged")
    t.contains(t.run { p.own, file, folder .. "/b.npy" }.err, "is not there: make weights writes it")
    t.contains(t.run { p.own, file }.err, "usage: looped_predict FILE OUT.npy|OUT.csv")
end)

add("models that cannot be predicted say why", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local several = programs.build("predict_several", (MLP:gsub("model[^\n]*\nloss[^\n]*", [[
model(function(batch) return { a = linear "a" { 3 } (batch.input), b = linear "b" { 3 } (batch.input) } end)
loss       { function(out, batch) return cross_entropy(out.a + out.b, batch.target) end }]])
        :gsub("\neval[^\n]*\n", "\n")))
    t.contains(programs.train(several, { "--predict", "x", "--out", "y.npy", status = 1 }).err,
        "--predict: the model gives several tensors, expected one")
    t.contains(programs.train(several, { "--save-weights", "x", status = 1 }).err,
        "--save-weights: the model gives several tensors, expected one")
    local reads = programs.build("predict_reads", (MLP:gsub("model[^\n]*", [[
model(function(batch) return linear "a" { 3 } (batch.input) + embedding "b" { 3, 3 } (batch.target) end)]])))
    t.contains(programs.train(reads, { "--predict", "x", "--out", "y.npy", status = 1 }).err,
        "--predict: the model reads batch.target, which rows to predict do not have")
    t.equal(host.exists(reads.folder .. "/predict.c"), false)
end)

add("on a device the outputs are those of the C target up to rounding", function(t)
    local programs, environment = dofile("tests/lua/devices.lua").open(t)
    local _, p = trained(t, "predict", MLP, { predict = true, lib = true })
    local device = programs.build("predict_cuda", MLP .. 'target "cuda"\n')
    local folder, file = t.temp(), data(programs) .. "tiny.csv"
    device.checkpoint = p.checkpoint
    predict(programs, p, file, folder .. "/a.npy")
    predict(programs, device, file, folder .. "/b.npy", { env = environment() })
    local _, a = read_npy(t, folder .. "/a.npy")
    local shape, b = read_npy(t, folder .. "/b.npy")
    t.equal(shape, "90, 3")
    for i, x in ipairs(a) do t.near(b[i], x, 1e-5) end
    programs.train(p, { "--save-weights", folder .. "/a.bin", "--checkpoint", p.checkpoint })
    programs.train(device, { "--save-weights", folder .. "/b.bin", "--checkpoint", p.checkpoint, env = environment() })
    t.equal(host.sha256(host.read(folder .. "/a.bin"):sub(65)), host.sha256(host.read(folder .. "/b.bin"):sub(65)))
end)

return tests
