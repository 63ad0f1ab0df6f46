-- Data of every format, from the file to the batch: batches of a program are compared with values computed here from
-- the definition of the format, for small generated files.
local tests = {}
local function add(name, f)
    tests[#tests + 1] = { name, function(t) f(t, t.load("tests/lua/formats.lua")(t)) end }
end

local NEAR = { f32 = 1e-6, f64 = 1e-15 }

-- Without rows of their own evaluations read the files of train.
local function spec(data, model, more)
    if not data:find "eval = " then
        data = data .. ", eval = " .. (data:match "train = (%b{})" or data:match 'train = ("[^"]*")')
    end
    return ([[
data       { %s, shuffle = false }
batch      (4)
accumulate (2)
%s
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.05 }
train      { updates = 3, seed = 5 }
eval       { every = 3 }
%s]]):format(data, model, more or "")
end

local MLP = 'model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }'
local IMAGES = 'model      { flatten {}, linear "fc1" { 8 }, tanh {}, linear "fc2" { 10 } }'

-- Checks the number of updates, and that every loss is finite.
local function check_trained(t, events, updates)
    local n = 0
    for _, event in ipairs(events) do
        if event.event == "update" then
            n = n + 1
            assert(math.type(event.loss) and event.loss == event.loss and event.loss < 100, "loss")
        end
    end
    t.equal(n, updates or 3)
end

local function pixel(i) return (i * 37 + i // 30 * 11) % 256 end
local function label(row) return row % 3 end

add("idx: bytes scaled and normalised, gzip too", function(t, formats)
    local folder = formats.programs.folder() .. "/data/"
    formats.write("formats/images", formats.idx({ 26, 6, 5 }, pixel))
    formats.write("formats/labels", formats.idx({ 26 }, label))
    t.equal(t.shell(("gzip -kf %sformats/images && mv %sformats/images.gz %sformats/zipped_images"):format(folder,
        folder, folder)).status, 0)
    for _, real in ipairs { "f32", "f64" } do
        local images = real == "f32" and "images" or "zipped_images"
        local p = formats.build("idx_" .. real, spec(('"idx", train = { "formats/%s", "formats/labels" }, '
            .. "scale = 1/255, mean = { 0.25 }, std = { 0.5 }"):format(images), IMAGES,
            ("precision %q"):format(real)))
        local seen, events = formats.run(p)
        check_trained(t, events)
        local function value(row, i) return (pixel(row * 30 + i) / 255 - 0.25) / 0.5 end
        for k = 0, 5 do
            formats.check(seen.train[k], k, "input", NEAR[real], value)
            formats.check(seen.train[k], k, "target", 0, label)
        end
        t.equal(seen.train[0].input.width, 30)
        for k = 0, 5 do formats.check(seen.eval[k], k, "input", NEAR[real], value) end
        t.equal(seen.eval[6].input.rows, 2, "rows of the last evaluation batch")
    end
end)

local MEAN, STD = { .4914, .4822, .4465 }, { .2023, .1994, .2010 }
local TUTORIAL = "mean = { .4914, .4822, .4465 }, std = { .2023, .1994, .2010 }"

local function cifar_value(byte, i)
    local c = i // 1024 + 1
    return (byte / 255 - MEAN[c]) / STD[c]
end

add("cifar10: files of a pattern in the order of names, normalised by channel", function(t, formats)
    formats.cifar_files()
    local text = spec('"cifar10", train = "formats/cifar_*.bin", eval = "formats/test.bin", ' .. TUTORIAL, IMAGES)
    local p = formats.build("cifar", text)
    local seen, events = formats.run(p)
    check_trained(t, events)
    for k = 0, 5 do                    -- the sixth has rows of both files
        formats.check(seen.train[k], k, "input", NEAR.f32, function(row, i)
            return cifar_value(formats.colour(row, i), i)
        end)
        formats.check(seen.train[k], k, "target", 0, formats.class)
    end
    formats.check(seen.eval[0], 0, "target", 0, function(row) return formats.class(100 + row) end)
    formats.check(seen.eval[1], 4, "input", NEAR.f32, function(row, i)
        return cifar_value(formats.colour(100 + row, i), i)
    end)
    t.equal(seen.eval[1].input.rows, 1)
    t.contains(host.read(p.folder .. "/data.c"), '"formats/cifar_a.bin",\n    "formats/cifar_b.bin",\n')
end)

-- The random numbers of runtime/base/rng.h, in Lua's own arithmetic modulo 2^64.
local GOLDEN <const> = 0x9e3779b97f4a7c15

local function mix(z)
    z = (z ~ z >> 30) * 0xbf58476d1ce4e5b9
    z = (z ~ z >> 27) * 0x94d049bb133111eb
    return z ~ z >> 31
end

local function key_of(seed, stream) return mix(mix(seed + GOLDEN) ~ stream) end
local function number_at(key, index) return mix(key + GOLDEN * (index + 1)) end
local function uniform(key, index) return (number_at(key, index) >> 11) * 2.0 ^ -53 end

local function stream_of(name)
    local hash = 0xcbf29ce484222325
    for byte in name:gmatch(".") do hash = (hash ~ byte:byte()) * 0x100000001b3 end
    return hash
end

local function draw_key(seed, cycle, row)
    return number_at(key_of(number_at(key_of(seed, stream_of "augment"), 0), cycle), row)
end

-- Value i of the crop of row `row` that the key gives: padding 4, crop 32, then mirrored or not.
local function cropped(formats, row, i, key)
    local top, left = math.floor(uniform(key, 0) * 9) - 4, math.floor(uniform(key, 1) * 9) - 4
    local c, y, x = i // 1024, i // 32 % 32, i % 32
    if uniform(key, 2) < 0.5 then x = 31 - x end
    local line, column = y + top, x + left
    local inside = line >= 0 and line < 32 and column >= 0 and column < 32
    return cifar_value(inside and formats.colour(row, c * 1024 + line * 32 + column) or 0, i)
end

local AUGMENTED = '"cifar10", train = "formats/cifar_*.bin", crop = { 32, padding = 4 }, flip = true, '
    .. TUTORIAL

add("cifar10: crops and flips are a function of seed, cycle and row", function(t, formats)
    formats.cifar_files()
    local seen, events = formats.run(formats.build("augmented", spec(AUGMENTED, IMAGES)))
    check_trained(t, events)
    for k = 0, 5 do                    -- cycles of 8 rows
        formats.check(seen.train[k], k, "input", NEAR.f32, function(row, i)
            return cropped(formats, row, i, draw_key(5, row // 8, row % 8))
        end)
    end
    for k = 0, 5 do                    -- an evaluation has none
        formats.check(seen.eval[k], k, "input", NEAR.f32, function(row, i)
            return cifar_value(formats.colour(row, i), i)
        end)
    end
end)

add("cifar10: four micro-steps of 2 rows see the crops of one of 8", function(t, formats)
    formats.cifar_files()
    local function values(rows, count)
        local text = spec(AUGMENTED, IMAGES):gsub("batch      %(4%)", ("batch (%d)"):format(rows))
            :gsub("accumulate %(2%)", ("accumulate (%d)"):format(count)):gsub(", shuffle = false", "")
        local seen = formats.run(formats.build(("crops_a%d"):format(count), text))
        local all = {}
        for k = 0, 3 * count - 1 do
            local batch = seen.train[k].input.values
            table.move(batch, 1, #batch, #all + 1, all)
        end
        return all
    end
    local four, one = values(2, 4), values(8, 1)
    t.equal(#four, 24 * 3072)
    local differ = 0
    for i, value in ipairs(four) do
        if value ~= one[i] then differ = differ + 1 end
    end
    t.equal(differ, 0)
end)

local function sequence(rows) return ('model { embedding "table" { %d, 6 }, tanh {}, linear "fc" { %d } }'):format(
    rows, rows) end

add("text: windows of ids, the target one byte further, the last rows for evaluation", function(t, formats)
    local text = ("to be, or not to be: that is the question."):rep(6)
    local known, ids = {}, {}
    for byte in text:gmatch(".") do known[byte] = true end
    for byte = 0, 255 do
        if known[string.char(byte)] then ids[#ids + 1] = string.char(byte) end
    end
    for id, byte in ipairs(ids) do known[byte] = id - 1 end
    formats.write("formats/one.txt", text:sub(1, 100))
    formats.write("formats/two.txt", text:sub(101))
    local rows = (#text - 1) // 9
    t.equal(rows, 27)
    local p = formats.build("text", spec('"text", train = "formats/*.txt", context = 9, split = { eval = 3 }',
        sequence(#ids)))
    local seen, events = formats.run(p)
    check_trained(t, events)
    local function id_at(place) return known[text:sub(place + 1, place + 1)] end
    for k = 0, 5 do
        formats.check(seen.train[k], k, "input", 0, function(row, i) return id_at(row * 9 + i) end)
        formats.check(seen.train[k], k, "target", 0, function(row, i) return id_at(row * 9 + i + 1) end)
    end
    t.equal(seen.eval[0].input.rows, 3)
    formats.check(seen.eval[0], 0, "input", 0, function(row, i) return id_at((24 + row) * 9 + i) end)
    local source = host.read(p.folder .. "/rows.c")
    t.contains(source, ("VOCABULARY[%d] = {\n    32, 44, 46, 58, 97, 98,"):format(#ids))
end)

-- Token files: of their own layout, and raw.
local function token_file(tokens, header)
    local parts = { header and string.pack("<i4i4i4", 20240520, 1, #tokens) .. ("\0"):rep(1012) or "" }
    for _, token in ipairs(tokens) do parts[#parts + 1] = string.pack("<I2", token) end
    return table.concat(parts)
end

add("tokens: llm.c's files and raw ones", function(t, formats)
    local tokens = {}
    for i = 1, 200 do tokens[i] = i * i % 97 end
    formats.write("formats/tokens.bin", token_file(tokens, true))
    formats.write("formats/raw.bin", token_file(tokens, false))
    for _, name in ipairs { "tokens", "raw" } do
        local p = formats.build(name, spec(('"tokens", train = "formats/%s.bin", eval = "formats/tokens.bin", '
            .. "context = 7"):format(name), sequence(97)))
        local seen, events = formats.run(p)
        check_trained(t, events)
        for k = 0, 5 do
            formats.check(seen.train[k], k, "input", 0, function(row, i) return tokens[row * 7 + i + 1] end)
            formats.check(seen.train[k], k, "target", 0, function(row, i) return tokens[row * 7 + i + 2] end)
        end
        t.equal(seen.eval[6].target.values, { table.unpack(tokens, 24 * 7 + 2, 28 * 7 + 1) })
    end
    local path = formats.programs.folder() .. "/few_rows.lua"
    t.write(path, spec('"tokens", train = "formats/raw.bin", context = 7', sequence(96)))
    local result = formats.programs.gagen { "check", path }
    t.equal(result.status, 1)
    t.match(result.err, "few_rows.lua:4: embedding 'table': the table has 96 rows, the ids go up to 96: expected 97")
end)

add("npy: floats as they are, bytes and channels normalised, ids and numbers as targets", function(t, formats)
    local rows, values, bytes, classes, numbers = 26, {}, {}, {}, {}
    for i = 1, rows * 4 do values[i], bytes[i] = math.sin(i), i * 5 % 256 end
    for i = 1, rows do classes[i], numbers[i] = i % 3, math.cos(i) end
    formats.write("formats/values.npy", formats.npy("<f8", "<d", { rows, 4 }, values))
    formats.write("formats/bytes.npy", formats.npy("|u1", "B", { rows, 2, 2 }, bytes))
    formats.write("formats/classes.npy", formats.npy("<i8", "<i8", { rows }, classes))
    formats.write("formats/numbers.npy", formats.npy("<f4", "<f", { rows }, numbers))
    local p = formats.build("npy", spec('"npy", train = { "formats/values.npy", "formats/classes.npy" }', MLP))
    local seen, events = formats.run(p)
    check_trained(t, events)
    for k = 0, 5 do
        formats.check(seen.train[k], k, "input", NEAR.f32, function(row, i) return values[row * 4 + i + 1] end)
        formats.check(seen.train[k], k, "target", 0, function(row) return classes[row + 1] end)
    end
    p = formats.build("npy_bytes", (spec('"npy", train = { "formats/bytes.npy", "formats/numbers.npy" }, '
        .. "scale = 1/64, mean = { 1, 2 }, std = { 2, 4 }", MLP,
        'precision "f64"'):gsub('"cross_entropy"', '"mse"'):gsub("model [^\n]*",
        'model (function(batch) return pick { axis = 2, index = 1 } (linear "fc" { 1 } (flatten {} (batch.input))) end)')))
    seen, events = formats.run(p)
    check_trained(t, events)
    for k = 0, 5 do
        formats.check(seen.train[k], k, "input", NEAR.f64, function(row, i)
            return (bytes[row * 4 + i + 1] / 64 - (i // 2 + 1)) / (i // 2 * 2 + 2)
        end)
        formats.check(seen.train[k], k, "target", NEAR.f32, function(row) return numbers[row + 1] end)
    end
end)

add("tensors: every tensor is a field by its name", function(t, formats)
    local a, b, labels = {}, {}, {}
    for i = 1, 30 * 3 do a[i] = math.sin(i) end
    for i = 1, 30 * 2 do b[i] = i * 3 % 17 - 8 end
    for i = 1, 30 do labels[i] = i % 3 end
    formats.write("formats/set.safetensors", formats.tensors { { "wide", "F32", "<f", { 30, 3 }, a },
        { "class", "I64", "<i8", { 30 }, labels }, { "narrow", "F64", "<d", { 30, 2 }, b } })
    local p = formats.build("tensors", spec('"tensors", train = "formats/set.safetensors", target = "class", '
        .. "split = { eval = 6, seed = 3 }", [[
model(function(batch)
    return linear "out" { 3 } (tanh(linear "a" { 8 } (batch.wide) + linear "b" { 8 } (batch.narrow)))
end)]]))
    local seen, events = formats.run(p)
    check_trained(t, events)
    t.equal(seen.train[0].wide.width, 3)
    t.equal(seen.eval[0].target.rows + seen.eval[1].target.rows, 6)
    for k = 0, 5 do        -- rows are permuted by the split: each field must be of the same row
        local batch = seen.train[k]
        for row = 0, 3 do
            local at
            for r = 0, 29 do
                if math.abs(a[3 * r + 1] - batch.wide.values[3 * row + 1]) < 1e-6 then at = r end
            end
            assert(at, "no row of the file")
            t.near(batch.wide.values[3 * row + 3], a[3 * at + 3], 1e-6)
            t.near(batch.narrow.values[2 * row + 2], b[2 * at + 2], 0)
            t.equal(batch.target.values[row + 1], labels[at + 1])
        end
    end
end)

-- The targets of the evaluation are all whole; in f64 they take twice the bytes of class numbers.
add("csv: a header, several files, a real target", function(t, formats)
    local function lines(first, last, target)
        local list = { "a,b,c" }
        for i = first, last do list[#list + 1] = ("%d,%s,%d"):format(i, target:format(i / 4), -i) end
        return table.concat(list, "\n") .. "\n"
    end
    formats.write("formats/part1.csv", lines(0, 15, "%.2f"))
    formats.write("formats/part2.csv", lines(16, 25, "%.2f"))
    formats.write("formats/whole.csv", lines(0, 15, "%.0f"))
    local p = formats.build("csv", (spec('"csv", train = "formats/part*.csv", eval = "formats/whole.csv", target = 2, '
        .. "header = true, scale = 2", MLP, 'precision "f64"'):gsub('"cross_entropy"', '"mse"'):gsub("model [^\n]*",
        'model (function(batch) return pick { axis = 2, index = 1 } (linear "fc" { 1 } (0.01 * batch.input)) end)')))
    local seen, events = formats.run(p)
    check_trained(t, events)
    for k = 0, 5 do
        formats.check(seen.train[k], k, "input", 0, function(row, i) return i == 0 and 2 * row or -2 * row end)
        formats.check(seen.train[k], k, "target", 0, function(row) return row / 4 end)
    end
    for k = 0, 3 do
        formats.check(seen.eval[k], k, "target", 0, function(row) return tonumber(("%.0f"):format(row / 4)) end)
    end
end)

add("a split by a fraction is the split by its number of rows, which is said", function(t, formats)
    local path = formats.programs.folder() .. "/fraction.lua"
    formats.write("fraction.txt", ("to be, or not to be: "):rep(40))             -- 840 bytes: 104 rows of 8
    local function shown(data, model)
        t.write(path, spec(data, model))
        local result = formats.programs.gagen { "show", path, "data.c" }
        t.equal(result.status, 0, result.err)
        return (result.out:gsub("^/%*.-%*/", "")), result.err:match "fraction%.lua:1: data: ([^\n]*)"
    end
    for _, case in ipairs {
        { '"csv", train = "tiny.csv", split = { eval = %s, seed = 3 }', MLP, "0.25", 23, 90 },
        { '"csv", train = "tiny.csv", split = { eval = %s }', MLP, "1e-2", 1, 90 },
        { '"text", train = "fraction.txt", context = 8, split = { eval = %s }', 'model { embedding "e" { 16, 16 } }',
            "0.1", 10, 104 } } do
        local data, model, fraction, rows, all = table.unpack(case)
        local text, said = shown(data:format(fraction), model)
        local same, silent = shown(data:format(rows), model)
        t.equal({ said, silent }, { ("%d of %d rows are for evaluation"):format(rows, all) })
        t.contains(text, (".eval_rows = %d"):format(rows))
        t.equal(text, same)
    end
end)

return tests
