-- Wrong data is refused: by gagen with the line of the spec, by the program with the path of the file.
local tests = {}
local function add(name, f)
    tests[#tests + 1] = { name, function(t) f(t, t.load("tests/lua/formats.lua")(t)) end }
end

local REST = [[

batch      (4)
model      { flatten {}, linear "fc" { 3 } }
loss       %s
optimizer  { "sgd", lr = 0.05 }
train      { updates = 3 }
]]

-- A label that gagen and programs accept.
local function class(row) return row % 3 end

local function write_all(formats)
    local ids, far, odd = {}, {}, {}
    for i = 1, 20 do ids[i], far[i], odd[i] = i % 3, i == 7 and -1 or i % 3, i == 7 and -7 or i == 9 and -1 or 0 end
    local ten = formats.cifar(0, 10, class, function() return 0 end)
    formats.write("wrong/images", formats.idx({ 20, 6, 5 }, function(i) return i % 256 end))
    formats.write("wrong/wide", formats.idx({ 20, 6, 7 }, function(i) return i % 256 end))
    formats.write("wrong/labels", formats.idx({ 20 }, class))
    formats.write("wrong/few", formats.idx({ 19 }, class))
    formats.write("wrong/cut.bin", ten:sub(1, -2))
    formats.write("wrong/label.bin", ten:gsub("^.", "\x0a"))
    formats.write("wrong/short.txt", "abc")
    formats.write("wrong/train.txt", ("abc"):rep(20))
    formats.write("wrong/eval.txt", ("abc"):rep(9) .. "d")
    formats.write("wrong/odd.bin", "abc")
    formats.write("wrong/x.npy", formats.npy("<f4", "<f", { 20, 2 }, table.move(ids, 1, 20, 21,
        table.move(ids, 1, 20, 1, {}))))
    formats.write("wrong/y.npy", formats.npy("<i4", "<i4", { 20 }, ids))
    formats.write("wrong/big.npy", formats.npy(">i4", ">i4", { 20 }, ids))
    formats.write("wrong/minus.npy", formats.npy("<i4", "<i4", { 20 }, far))
    formats.write("wrong/two_below.npy", formats.npy("<i4", "<i4", { 20 }, odd))
    formats.write("wrong/a.safetensors", formats.tensors { { "x", "I32", "<i4", { 20 }, ids },
        { "y", "I32", "<i4", { 20 }, ids } })
    formats.write("wrong/keyword.safetensors", formats.tensors { { "int", "I32", "<i4", { 20 }, ids },
        { "target", "I32", "<i4", { 20 }, ids } })
    formats.write("wrong/alone.safetensors", formats.tensors { { "target", "I32", "<i4", { 20 }, ids } })
    formats.write("wrong/half.csv", "1,2,0.5\n3,4,1\n" .. ("5,6,2\n"):rep(18))
    formats.write("wrong/minus.csv", "1,2,0\n3,4,1\n5,6,-1\n" .. ("5,6,2\n"):rep(18))
    formats.write("wrong/big_class.csv", "a,b,c\n1,2,4e9\n" .. ("5,6,2\n"):rep(18))
    formats.write("wrong/two/a.csv", ("1,2,0\n"):rep(9))
    formats.write("wrong/two/b.csv", "1,2,0\n1,2,2.5\n1,2,-1\n")
    formats.write("wrong/floats.npy", formats.npy("<f4", "<f", { 20 }, ids))
    formats.write("wrong/floats.safetensors", formats.tensors { { "input", "F32", "<f", { 20, 1 }, ids },
        { "y", "F64", "<d", { 20 }, ids } })
    formats.write("wrong/bool.safetensors", formats.bools(2))
    formats.write("wrong/names.csv", "a,b,c\n1,2,0\n")
    formats.write("wrong/three.csv", ("1,2,0\n"):rep(20))
    formats.write("wrong/four.csv", ("1,2,3,0\n"):rep(20))
    formats.write("wrong/" .. ("deep/"):rep(50) .. "x.csv", "1,2,0\n")
    for i = 1, 65 do formats.write(("wrong/many/%02d.csv"):format(i), "1,2,0\n") end
end

local IDX = '"idx", train = { "wrong/images", "wrong/labels" }, '

-- { arguments of `data`, the message (@ is the folder of the files), the loss or nil }
local CASES = {
    { '"idx", train = { "wrong/images", "wrong/few" }', "data: @images: 20 images, but @few has 19 labels: "
        .. "expected as many" },
    { '"idx", train = { "wrong/label*", "wrong/*e*" }', "data: train: 'wrong/label*' is 2 files, 'wrong/*e*' is" },
    { '"idx", train = { "wrong/labels", "wrong/images" }', "data: @labels: IDX of 1 axes, expected 3 or 4 (images)" },
    { '"csv", train = "wrong/three.csv", split = { eval = 0 }', "data: split: eval is 0, expected a number of rows, or a "
        .. "fraction of them between 0 and 1" },
    { '"csv", train = "wrong/three.csv", split = { eval = 1.0 }', "data: split: eval is 1.0, expected a number of rows" },
    { '"csv", train = "wrong/three.csv", split = { eval = -0.5 }', "data: split: eval is -0.5, expected a number of" },
    { '"csv", train = "wrong/three.csv", split = { eval = 2.5 }', "data: split: eval is 2.5, expected a number of rows" },
    { '"csv", train = "wrong/three.csv", split = { eval = 0.02 }', "data: split: eval is 0.02 of 20 rows, less than one: "
        .. "expected a larger fraction" },
    { '"csv", train = "wrong/three.csv", split = { eval = 0.99 }', "data: split: eval is 20, the file has 20 rows" },
    { '"csv", train = "wrong/three.csv", split = { eval = 2e1 }', "data: split: eval is 20, the file has 20 rows" },
    { '"csv", train = "wrong/three.csv", split = { fold = 21, of = 30 }', "data: split: fold is 21 of 20 rows, and has "
        .. "none of them" },
    { IDX .. "eval = { \"wrong/wide\", \"wrong/labels\" }", "data: eval has rows of input (1, 6, 7), train has "
        .. "(1, 6, 5)" },
    { IDX .. "mean = { 1, 2 }", "data: mean has 2 numbers, expected 1" },
    { IDX .. "mean = {}", "data: mean has 0 numbers, expected 1" },
    { IDX .. "std = { 0 }", "data: std is 0, expected a number > 0" },
    { IDX .. "mean = { 'a' }", "data: mean is 'a', expected a number" },
    { IDX .. "crop = { 9, padding = 1 }", "data: crop is 9, an image with its padding has 8" },
    { IDX .. "crop = { 4, 4 }", "data: crop: unexpected value 4 at position 2" },
    { IDX .. "crop = {}", "data: crop: size is missing, expected an integer" },
    { IDX .. "crop = 4", "data: crop is 4, expected a table" },
    { IDX .. "flip = 1", "data: flip is 1, expected true or false" },
    { '"idx", train = { "wrong/images", "wrong/labels", "x" }', "data 'idx': train = { images, labels }: unexpected "
        .. "value 'x' at position 3" },
    { '"cifar10", train = "wrong/cut.bin"', "data: @cut.bin: 30729 bytes, expected records of 3073: it is cut off" },
    { '"cifar10", train = "wrong/label.bin"', "data: @label.bin: label 10 of record 1, expected 0..9" },
    { '"text", train = "wrong/short.txt", context = 3', "data: train: 3 bytes give no window of context 3, "
        .. "expected 4 or more" },
    { '"text", train = "wrong/train.txt", eval = "wrong/eval.txt", context = 3', "data: @eval.txt: byte 0x64 at "
        .. "offset 27 does not occur in the training text" },
    { '"text", train = "wrong/train.txt", context = 4, split = { eval = 3, seed = 1 }', "data: split: the last "
        .. "windows of a sequence are for evaluation, expected only eval = rows" },
    { '"text", train = "wrong/train.txt", context = 4, split = { fold = 1, of = 3 }', "data: split: the last windows" },
    { '"text", train = "wrong/train.txt", context = 0', "data: context is 0, 1..16777216 expected" },
    { '"tokens", train = "wrong/odd.bin", context = 2', "data: @odd.bin: 3 bytes, expected 16-bit tokens" },
    { '"npy", train = { "wrong/x.npy", "wrong/big.npy" }', "data: @big.npy: .npy header: type '>i4' (big-endian)" },
    { '"npy", train = { "wrong/x.npy", "wrong/two_below.npy" }', "data: the target has the values -7 and -1, "
        .. "expected class numbers from 0" },
    { '"npy", train = { "wrong/x.npy", "wrong/minus.npy" }', "data: the target has the value -1, expected class "
        .. "numbers from 0; if it stands for what does not count, say loss { ..., ignore = -1 }" },
    { '"npy", train = { "wrong/x.npy", "wrong/x.npy" }, eval = { "wrong/x.npy", "wrong/y.npy" }', "data: eval has "
        .. "rows of target one number, train has (2)" },
    { '"tensors", train = "wrong/a.safetensors"', "data: wrong/a.safetensors has no tensor 'target', expected "
        .. "target = one of x, y" },
    { '"tensors", train = "wrong/a.safetensors", target = 2', "data 'tensors': target is 2, expected the name of a "
        .. "tensor" },
    { '"tensors", train = "wrong/keyword.safetensors"', "data: tensor 'int': the name has a meaning in C" },
    { '"tensors", train = "wrong/keyword.safetensors", target = "int"', "data: the target is 'int', but another "
        .. "tensor is called 'target'" },
    { '"tensors", train = "wrong/alone.safetensors"', "data: the target 'target' is the only tensor" },
    { '"csv", train = "wrong/half.csv"', "data: @half.csv:1: the target is 0.5, expected a class number, whole, from 0 "
        .. 'to 2^31-1: number the classes so, or take a loss of real targets, such as "mse"' },
    { '"csv", train = "wrong/minus.csv"', "data: @minus.csv:3: the target is -1, expected a class number, whole" },
    { '"csv", train = "wrong/big_class.csv", header = true', "data: @big_class.csv:2: the target is 4000000000, "
        .. "expected a class number" },
    { '"csv", train = "wrong/two/*.csv"', "data: @two/b.csv:2: the target is 2.5, expected a class number" },
    { '"npy", train = { "wrong/x.npy", "wrong/floats.npy" }', "data: @floats.npy: the target has the type <f4, "
        .. "expected <i4, <i8, <u1 or <u2: class numbers, whole, from 0 to 2^31-1" },
    { '"tensors", train = "wrong/floats.safetensors", target = "y"', "data: @floats.safetensors: the target 'y' has "
        .. "the type F64, expected I64, I32, I16, I8, U64, U32, U16, U8 or BOOL: class numbers" },
    { '"tensors", train = "wrong/bool.safetensors", target = "y"', "data: @bool.safetensors: tensor 'mask': row 2, "
        .. "element 3: byte 2 found, a BOOL is 0 or 1" },
    { '"csv", train = "wrong/names.csv"', "data: @names.csv:1: column 1: found 'a', expected a finite decimal "
        .. "number; if the first line is a header, say header = true" },
    { '"csv", train = "wrong/three.csv", header = true', "data: @three.csv:1: column 3: found a line of numbers, "
        .. "but header = true says that it is a header" },
    { '"csv", train = "wrong/three.csv", eval = "wrong/four.csv"', "data: @four.csv:1: more than 3 columns found, 3 "
        .. "expected" },
    { '"csv", train = "wrong/three.csv", eval = "wrong/half.csv"', "data: eval has other numbers in 'target', train "
        .. "has whole numbers" },
    { '"csv", train = "wrong/*r*.csv"', "data: @three.csv:1: 3 columns found, 4 expected" },
    { '"csv", train = "wrong/' .. ("deep/"):rep(50) .. '*.csv"', "data: 'wrong/deep/deep/deep/deep/deep/deep/deep...': "
        .. "a name of 261 bytes, expected at most 255" },
    { '"csv", train = "wrong/many/*.csv"', "data: 'wrong/many/*.csv' is 65 files, expected at most 64" },
    { '"csv", train = "wrong/many/*4.csv", eval = "wrong/many/*.csv"', "data: 'wrong/many/*.csv' is 65 files" },
}

add("gagen refuses files and fields of every kind", function(t, formats)
    local folder = formats.programs.folder()
    write_all(formats)
    for i, case in ipairs(CASES) do
        local path = folder .. "/wrong_data.lua"
        t.write(path, "data       { " .. case[1] .. " }" .. REST:format('"cross_entropy"'))
        local result = formats.programs.gagen { "check", path }
        local expected = path .. ":1: " .. case[2]:gsub("@", folder .. "/data/wrong/")
        if result.status ~= 1 or result.err:sub(1, #expected) ~= expected then
            error(("case %d: status %d\nexpected: %s\nfound:    %s"):format(i, result.status, expected, result.err), 0)
        end
    end
end)

-- A loss of real targets has no field `ignore` that a message could advise.
add("negative whole targets of a loss of real targets", function(t, formats)
    write_all(formats)
    local path = formats.programs.folder() .. "/negative.lua"
    local function refused(name, loss)
        t.write(path, ('data { "npy", train = { "wrong/x.npy", "wrong/%s.npy" } }'):format(name) .. REST:format(loss))
        return formats.programs.gagen { "check", path }.err
    end
    local function expected(found)
        return path .. ":1: data: the target has the " .. found .. ", but whole numbers are taken as class numbers "
            .. "from 0: expected real ones for this loss, of type <f4\n"
    end
    t.contains(refused("minus", '"mse"'), expected "value -1")
    t.contains(refused("two_below", '"smooth_l1"'), expected "values -7 and -1")
    t.contains(refused("minus", '(function(out, batch) return mse(mean(out), batch.target) end)'), expected "value -1")
    t.contains(refused("minus", '(function(out, batch) return cross_entropy(out, batch.target) end)'),
        "if it stands for what does not count, say loss { ..., ignore = -1 }")
end)

add("a list of layers over data without the field input", function(t, formats)
    write_all(formats)
    local path = formats.programs.folder() .. "/no_input.lua"
    t.write(path, 'data       { "tensors", train = "wrong/a.safetensors", target = "y" }'
        .. REST:format('"cross_entropy"'))
    t.contains(formats.programs.gagen { "check", path }.err, "batch has no field 'input', expected x or target: a list "
        .. "of layers begins with input, model (function(batch) ... end) with any")
end)

add("the target by the name of its tensor", function(t, formats)
    write_all(formats)
    local path = formats.programs.folder() .. "/own_name.lua"
    t.write(path, 'data       { "tensors", train = "wrong/a.safetensors", target = "y" }\n'
        .. [[batch (4)
model      (function(batch) return embedding "e" { 20, 3 } (batch.y) end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 1 }
]])
    t.contains(formats.programs.gagen { "check", path }.err,
        "own_name.lua:3: batch.y is the target of the data: expected batch.target")
end)

-- A program is generated for valid files, then started with others.
local function refused(t, formats, p, name, content, pattern)
    local folder = t.temp()
    t.equal(t.run { "cp", "-r", formats.programs.folder() .. "/data/wrong", folder .. "/wrong" }.status, 0)
    t.write(folder .. "/wrong/" .. name, content)
    local result = formats.programs.train(p, { "--data", folder, status = 1 })
    t.equal(select(2, result.err:gsub("\n", "")), 1, result.err)
    t.match(result.err, "^[%w_]+: " .. (folder .. "/wrong/" .. name):gsub("%p", "%%%0") .. ": " .. pattern)
end

add("the program refuses files that differ from those it was made for", function(t, formats)
    write_all(formats)
    local programs = formats.programs
    local idx = programs.build("refuse_idx", "data       { " .. IDX .. "}" .. REST:format '"cross_entropy"')
    local function pixel() return 0 end
    refused(t, formats, idx, "images", formats.idx({ 21, 6, 5 }, pixel), "21 rows of 1 x 6 x 5, expected 20 of")
    refused(t, formats, idx, "images", formats.idx({ 20, 6, 5 }, pixel):sub(1, -2), "ends after 599 of the 600 bytes")
    refused(t, formats, idx, "labels", formats.idx({ 20 }, function() return 3 end), "label 3 of image 1, expected 0%.%.2")
    local npy = programs.build("refuse_npy", 'data       { "npy", train = { "wrong/x.npy", "wrong/y.npy" } }'
        .. REST:format '"cross_entropy"')
    local many = {}
    for i = 1, 40 do many[i] = i == 5 and 3 or 0 end
    refused(t, formats, npy, "y.npy", formats.npy("<i4", "<i4", { 20 }, many), "bytes after the array, expected the end")
    refused(t, formats, npy, "y.npy", formats.npy("<i4", "<i4", { 20 }, table.move(many, 1, 20, 1, {})),
        "row 5, element 1: 3 found, expected a whole number in 0%.%.2")
    local mask = REST:gsub("model [^\n]*", 'model (function(batch) return linear "fc" { 3 } (reshape { 6 } '
        .. '(embedding "e" { 2, 2 } (batch.mask))) end)')
    formats.write("wrong/good.safetensors", formats.bools(1))
    local bool = programs.build("refuse_bool", 'data { "tensors", train = "wrong/good.safetensors", target = "y" }'
        .. mask:format '"cross_entropy"')
    refused(t, formats, bool, "good.safetensors", formats.bools(2), "tensor 'mask': row 2, element 3: byte 2 found, "
        .. "a BOOL is 0 or 1")
    refused(t, formats, npy, "x.npy", formats.npy("<f8", "<d", { 20, 2 }, many), "20 rows of 2 F64, expected 20 of 2 F32")
end)

add("ignored targets are not in the loss", function(t, formats)
    write_all(formats)
    local loss = '{ "cross_entropy", ignore = -1 }'
    local p = formats.programs.build("ignored", 'data       { "npy", train = { "wrong/x.npy", "wrong/minus.npy" }, '
        .. "shuffle = false }" .. REST:format(loss))
    local weights = {}
    for _, event in ipairs(formats.programs.events(p, {})) do
        if event.event == "update" then weights[#weights + 1] = event.weight end
    end
    t.equal(weights, { 4, 3, 4 })
end)

return tests
