-- Damaged .npy and .safetensors files.
local gzip, REST, formats = ...

local x, y = {}, {}
for i = 1, 16 do x[i], y[i] = i / 4, i % 3 end
y = table.move(y, 1, 8, 1, {})

local X, Y = formats.npy("<f4", "<f", { 8, 2 }, x), formats.npy("<i4", "<i4", { 8 }, y)
local HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 2), }"

-- A .npy file of X's values with another header; `start` other bytes in front of its length.
local function npy(header, start)
    return (start or "\x93NUMPY\1\0") .. string.pack("<I2", #header) .. header .. X:sub(-64)
end

local function edited(name, from, to, message, program, gagen)
    local first, last = HEADER:find(from, 1, true)
    return { name, npy(HEADER:sub(1, first - 1) .. to .. HEADER:sub(last + 1)), message and "@: .npy header: "
        .. message
        or program, gagen = gagen }
end

-- A .npy file with one of its 4-byte values changed; `n` from 1.
local function value(file, n, format, number)
    local at = #file - (file == X and 64 or 32) + 4 * (n - 1)
    return file:sub(1, at) .. string.pack(format, number) .. file:sub(at + 5)
end

local PRODUCT = "an extent is 0, or all of them give too large a product"
local NPY = {
    { "no byte", "", "@: ends after 0 of the 8 bytes of a .npy header: it is cut off" },
    { "cut in the magic", X:sub(1, 5), "@: ends after 5 of the 8 bytes of a .npy header" },
    { "cut in the length", X:sub(1, 9), "@: ends after 1 of the 2 bytes of a .npy header" },
    { "cut in the header", X:sub(1, 40), "@: ends after 30 of the 118 bytes of the .npy header" },
    { "cut behind the header", X:sub(1, 128), "@: ends after 0 of the 64 bytes of the array" },
    { "cut in a value", X:sub(1, -3), "@: ends after 62 of the 64 bytes of the array" },
    { "a value more", X .. "\0\0\0\0", "@: bytes after the array, expected the end of the file" },
    { "two arrays", X .. X, "@: bytes after the array, expected the end of the file" },
    { "another magic", "\x94" .. X:sub(2), "@: not a .npy file: it does not begin with 93 'NUMPY'" },
    { "text", ("1,2\n"):rep(8), "@: not a .npy file" },
    { "a zip archive, .npz", "PK\3\4" .. X, "@: not a .npy file" },
    { "gzip", gzip.pack(X), "@: not a .npy file" },
    { "version 0", npy(HEADER, "\x93NUMPY\0\0"), "@: .npy version 0.0, expected 1.0, 2.0 or 3.0" },
    { "version 4", npy(HEADER, "\x93NUMPY\4\0"), "@: .npy version 4.0, expected 1.0, 2.0 or 3.0" },
    { "version 1.1", npy(HEADER, "\x93NUMPY\1\1"), "@: .npy version 1.1, expected 1.0" },
    { "version 2 with the length of version 1", npy(HEADER, "\x93NUMPY\2\0"), "@: .npy header of 662372411 bytes, "
        .. "expected at most 4096" },
    { "a header of no byte", npy "", "@: .npy header: does not begin with '{'" },
    { "a length too short", "\x93NUMPY\1\0\40\0" .. X:sub(11), "@: .npy header: " },
    { "a length too large", "\x93NUMPY\1\0\xff\xff" .. X:sub(11),
        "@: .npy header of 65535 bytes, expected at most 4096" },
    { "a length beyond the end", "\x93NUMPY\1\0\0\1" .. X:sub(11),
        "@: ends after 182 of the 256 bytes of the .npy header" },
    edited("no brace", "{", "", "does not begin with '{'"),
    edited("no end", "}", "", "expected a key"),
    edited("text behind the end", "}", "} x", "text after the closing '}'"),
    edited("a zero byte", "}", "}\0", "text after the closing '}'"),
    edited("no colon", "descr':", "descr'", "expected a key"),
    edited("no comma", "False,", "False", "does not end with '}'"),
    edited("a key that is none", "'descr'", "'dtype'", "key 'dtype', expected descr, fortran_order and shape"),
    edited("a key twice", ", }", ", 'shape': (8, 2), }", "key 'shape' twice"),
    edited("a key of 300 bytes", "'descr'", "'" .. ("d"):rep(300) .. "'", "expected a key"),
    edited("a key without quotes", "'descr'", "descr", "expected a key"),
    edited("no descr", "'descr': '<f4', ", "", "descr, fortran_order or shape is missing"),
    edited("no shape", "'shape': (8, 2), ", "", "descr, fortran_order or shape is missing"),
    edited("no fortran_order", "'fortran_order': False, ", "", "descr, fortran_order or shape is missing"),
    edited("columns first", "False", "True", "fortran_order is not False: save the array in C order"),
    edited("fortran_order as a number", "False", "0", "fortran_order is not False"),
    edited("big-endian", "<f4", ">f4", "type '>f4' (big-endian), expected <f4"),
    edited("complex numbers", "<f4", "<c8", "type '<c8', expected <f4"),
    edited("objects", "<f4", "|O", "type '|O' (Python objects), expected <f4"),
    edited("texts", "<f4", "<U1", "type '<U1', expected <f4"),
    edited("a type of 99 bytes", "<f4", ("f"):rep(99), "descr is no type by name"),
    edited("a structure", "'<f4'", "[('a', '<f4')]", "descr is no type by name: structured arrays are not taken"),
    edited("escapes of a terminal as the type", "<f4", "\27[2J", "type '?[2J', expected <f4"),
    edited("wider values", "<f4", "<f8", nil, "@: 8 rows of 2 F64, expected 8 of 2 F32",
        "@: ends after 64 of the 128 bytes of the array"),
    edited("whole numbers", "<f4", "<i4", nil, "@: 8 rows of 2 I32, expected 8 of 2 F32",
        "3: linear: 'x' has whole numbers, expected real ones"),
    edited("a shape without brackets", "(8, 2)", "8", "the shape is no tuple"),
    edited("a shape that does not end", "(8, 2), }", "(8, 2", "the shape does not end"),
    edited("a shape without commas", "(8, 2)", "(8 2)", "the shape does not end"),
    edited("a negative extent", "(8, 2)", "(8, -2)", "the shape holds something else than whole numbers"),
    edited("half an extent", "(8, 2)", "(8, 2.5)", "the shape does not end"),
    edited("an extent of text", "(8, 2)", "('8', 2)", "the shape holds something else than whole numbers"),
    edited("an extent of 30 digits", "(8, 2)", "(8, " .. ("9"):rep(30) .. ")", "the shape holds something else"),
    edited("extents whose product is 2^120", "(8, 2)", "(8, 1048576, 1048576, 1048576, 1048576, 1048576)", PRODUCT),
    edited("extents of 2^31", "(8, 2)", "(8, 2147483648)", PRODUCT),
    edited("rows of 2^58", "(8, 2)", "(288230376151711744, 2)", PRODUCT),
    edited("an extent of 0", "(8, 2)", "(8, 0)", PRODUCT),
    edited("no rows", "(8, 2)", "(0, 2)", PRODUCT),
    edited("a single number", "(8, 2)", "()", "a single number, expected rows"),
    edited("seven axes", "(8, 2)", "(8, 2, 1, 1, 1, 1, 1)", "more axes than 6"),
    edited("200 axes", "(8, 2)", "(8, 2" .. (", 1"):rep(198) .. ")", "more axes than 6"),
    edited("a row more", "(8, 2)", "(9, 2)", nil, "@: 9 rows of 2 F32, expected 8", "@: ends after 64 of the 72 bytes"),
    edited("a row less", "(8, 2)", "(7, 2)", nil, "@: 7 rows of 2 F32, expected 8", "@: bytes after the array"),
    edited("an axis more", "(8, 2)", "(8, 1, 2)", nil, "@: 8 rows of 2 F32, expected 8 of 2 F32, of the same shape",
        false),
    edited("axes exchanged", "(8, 2)", "(2, 8)", nil, "@: 2 rows of 8 F32, expected 8 of 2 F32",
        "~/y.npy: 8 rows, the input has 2: expected as many"),
    { "NaN", value(X, 6, "<f", 0 / 0), "@: row 3, element 2: nan found, expected a finite number that F32 holds" },
    { "infinity", value(X, 16, "<f", math.huge), "@: row 8, element 2: inf found, expected a finite number" },
    { "a folder", { folder = true }, "@: not a regular file", gagen = "'x.npy' is a folder, expected a file" },
    { "no file", { missing = true }, "--data ~: has no file %", gagen = "'x.npy' is not there" },
    { "target: a class out of range", value(Y, 4, "<i4", 3), "@: row 4, element 1: 3 found, expected a whole number in "
        .. "0..2", gagen = "4: loss: the model gives 3 classes, the data has the class 3", note = "@: row 4: found 3",
            at = "y" },
    { "target: a class below 0", value(Y, 4, "<i4", -5),
        "@: row 4, element 1: -5 found, expected a whole number in 0..2",
        gagen = "the target has the value -5, expected class numbers from 0", note = "@: row 4: found -5", at = "y" },
    { "target: fewer rows", formats.npy("<i4", "<i4", { 7 }, table.move(y, 1, 7, 1, {})),
        "@: 7 rows of 1 I32, expected 8",
        gagen = "@: 7 rows, the input has 8: expected as many", at = "y" },
    { "target: floats", (Y:gsub("<i4", "<f4")), "@: 8 rows of 1 F32, expected 8 of 1 I32",
        gagen = "@: the target has the type <f4, expected <i4", at = "y" },
    { "target: 8 bytes each", formats.npy("<i8", "<i8", { 8 }, { 0, 1, 2, 0, 1 << 40, 2, 0, 1 }), "@: 8 rows of 1 I64, "
        .. "expected 8 of 1 I32", gagen = "@: row 5, element 1: 1099511627776 found, expected a whole number in",
            at = "y" },
}

-- -- safetensors
local DATA = X:sub(-64) .. Y:sub(-32)
local JSON = '{"x":{"dtype":"F32","shape":[8,2],"data_offsets":[0,64]},'
    .. '"y":{"dtype":"I32","shape":[8],"data_offsets":[64,96]}}'

-- A safetensors file with this header; `length` other than its own, `data` other than DATA.
local function tensors(json, length, data)
    return string.pack("<I8", length or #json) .. json .. (data or DATA)
end

local function changed(name, from, to, message, more)
    local first, last = JSON:find(from, 1, true)
    local mutant = { name, tensors(JSON:sub(1, first - 1) .. to .. JSON:sub(last + 1)), "@: " .. message }
    for key, entry in next, more or {} do mutant[key] = entry end
    return mutant
end

-- The header cannot be read as JSON.
local function broken(name, from, to) return changed(name, from, to, "header: ") end

local GOOD = tensors(JSON)
local SIZE = "shape and dtype do not give the size of data_offsets"
local TENSORS = {
    { "no byte", "", "@: too short for a safetensors file" },
    { "cut in the length", GOOD:sub(1, 7), "@: too short for a safetensors file" },
    { "cut behind the length", GOOD:sub(1, 8), "@: too short for a safetensors file" },
    { "cut in the header", GOOD:sub(1, 60),
        ("@: header of %d bytes in a file of 60: not a safetensors file, or cut off")
        :format(#JSON) },
    { "cut behind the header", GOOD:sub(1, 8 + #JSON), "@: tensor 'x': data reaches beyond the end of the file" },
    { "cut in the first tensor", GOOD:sub(1, -40), "@: tensor 'x': data reaches beyond the end of the file" },
    { "a byte less", GOOD:sub(1, -2), "@: tensor 'y': data reaches beyond the end of the file" },
    { "a byte more", GOOD .. "\0", "@: bytes after the last tensor, expected none" },
    { "gzip", gzip.pack(GOOD), "@: header of 559903 bytes" },
    { "text", ("1,2,3\n"):rep(9), "@: header of 3" },
    { "a header of no byte", tensors("", 0), "@: header of 0 bytes in a file of 104" },
    { "a header of 2^64 - 1 bytes", tensors(JSON, -1), "@: header of 18446744073709551615 bytes" },
    { "a header of 2^63 bytes", tensors(JSON, math.mininteger), "@: header of 9223372036854775808 bytes" },
    { "a header longer than the file", tensors(JSON, 300), "@: header of 300 bytes in a file of" },
    { "a header that reaches into the data", tensors(JSON, #JSON + 4), "@: header: end of file expected" },
    { "a header without its end", tensors(JSON, #JSON - 1), "@: header: " },
    { "a blank before the header", tensors(" " .. JSON), "@: the header does not start with '{'" },
    { "an array as the header", tensors('[1,2]'), "@: the header does not start with '{'" },
    { "no tensors", tensors("{}", nil, ""), "@: no tensors, expected the fields of a row" },
    { "a thousand brackets", tensors('{"x":' .. ("["):rep(3000)), "@: header: maximum parsing depth reached" },
    broken("no quotes", '"x"', "x"), broken("quotes that never end", '"x"', '"x'), broken("no colon", '"x":', '"x"'),
    broken("a comma too many", "[8,2]", "[8,2,]"), broken("a zero byte in the header", '"x":', '"x":\0'),
    broken("a zero byte in a name", '"x"', '"x\\u0000"'), broken("no UTF-8", '"x"', '"x\xff"'),
    broken("half a surrogate", '"x"', '"\\ud800"'), broken("NaN as an extent", "[8,2]", "[8,NaN]"),
    broken("an extent of 30 digits", "[8,2]", "[8," .. ("9"):rep(30) .. "]"), broken("a comment", "{", "{/* */"),
    broken("a tensor twice", '"y"', '"x"'), broken("a key twice", '"shape":[8]', '"shape":[8],"shape":[8]'),
    changed("a tensor that is a number", '{"dtype":"I32","shape":[8],"data_offsets":[64,96]}', "1",
        "tensor 'y': dtype '' is unknown"),
    changed("no dtype", '"dtype":"F32",', "", "tensor 'x': dtype '' is unknown"),
    changed("a dtype that is none", "F32", "F31", "tensor 'x': dtype 'F31' is unknown"),
    changed("a dtype in lower case", "F32", "f32", "tensor 'x': dtype 'f32' is unknown"),
    changed("a dtype that is a number", '"F32"', "32", "tensor 'x': dtype '' is unknown"),
    changed("a dtype that no batch has", "F32", "F8_E4M3", "tensor 'x': " .. SIZE),
    changed("a wider dtype", "F32", "F64", "tensor 'x': " .. SIZE),
    changed("elements of a type that is not taken", '"F32","shape":[8,2]', '"C64","shape":[8,1]',
        "tensor 'x': elements of "
        .. "type C64 are not taken"),
    changed("no shape", '"shape":[8,2],', "", "tensor 'x': " .. SIZE),
    changed("a shape that is a number", "[8,2]", "16", "tensor 'x': " .. SIZE),
    changed("a negative extent", "[8,2]", "[-8,-2]", "tensor 'x': " .. SIZE),
    changed("half an extent", "[8,2]", "[8,2.0]", "tensor 'x': " .. SIZE),
    changed("an extent in quotes", "[8,2]", '["8",2]', "tensor 'x': " .. SIZE),
    changed("extents whose product is 2^64 + 16", "[8,2]", "[4294967296,4294967296]", "tensor 'x': " .. SIZE),
    changed("a single number", "[8,2]", "[]", "tensor 'x': " .. SIZE),
    changed("a row more", "[8,2]", "[9,2]", "tensor 'x': " .. SIZE),
    changed("seven axes", "[8,2]", "[8,2,1,1,1,1,1]", "tensor 'x': more axes than 6"),
    changed("axes exchanged", "[8,2]", "[2,8]", "tensor 'y' has 8 rows, 'x' has 2: expected as many"),
    changed("an axis more", "[8,2]", "[8,1,2]", "tensor 'x': 8 rows of 2 F32, expected 8 of 2 F32, of the same shape",
        { gagen = "4: loss: the model gives shape (2, 1, 3), expected (rows, classes)" }),
    changed("no data_offsets", ',"data_offsets":[0,64]', "", "tensor 'x': data_offsets are not two whole numbers"),
    changed("one offset", "[0,64]", "[64]", "tensor 'x': data_offsets are not two whole numbers"),
    changed("three offsets", "[0,64]", "[0,64,96]", "tensor 'x': data_offsets are not two whole numbers"),
    changed("offsets with a point", "[0,64]", "[0.0,64]", "tensor 'x': data_offsets are not two whole numbers"),
    changed("a negative offset", "[0,64]", "[-64,0]", "tensor 'x': data_offsets begin after their end"),
    changed("offsets exchanged", "[0,64]", "[64,0]", "tensor 'x': data_offsets begin after their end"),
    changed("an offset of 2^62", "[64,96]", "[4611686018427387904,4611686018427387936]",
        "tensor 'y': data reaches beyond "
        .. "the end of the file"),
    changed("an overlap", "[64,96]", "[60,92]", "tensors overlap or leave a hole in the data"),
    changed("the same place twice", '[8],"data_offsets":[64,96]', '[16],"data_offsets":[0,64]', "tensor 'y': overlaps "
        .. "another tensor"),
    changed("a hole", '[8],"data_offsets":[64,96]', '[7],"data_offsets":[68,96]', "tensors overlap or leave a hole"),
    changed("bytes that are no tensor's", '[8],"data_offsets":[64,96]', '[7],"data_offsets":[64,92]', "bytes after the "
        .. "last tensor, expected none"),
    changed("another name", '"x"', '"z"', "has no tensor 'x': is it the file the program was made for?",
        { gagen = "3: batch has no field 'x', expected z or target" }),
    changed("a name that is no identifier", '"x"', '"x-1"', "tensor 'x-1': expected letters, digits and _ in its name"),
    changed("a name of no letter", '"x"', '""', "tensor '': expected letters, digits and _ in its name"),
    changed("a name of 64 letters", '"x"', '"' .. ("x"):rep(64) .. '"',
        ("tensor '%s': expected letters"):format(("x"):rep(64))),
    changed("a program's escape in a name", '"x"', '"\\u001b[2J"', "tensor '?[2J': expected letters"),
    changed("metadata that is a list", "{", '{"__metadata__":[],', "__metadata__ is not an object"),
    changed("metadata with a number", "{", '{"__metadata__":{"n":1},', "__metadata__ holds something beside texts"),
    changed("whole numbers in the place of floats", "F32", "I32", "tensor 'x': 8 rows of 2 I32, expected 8 of 2 F32",
        { gagen = "3: linear: 'x' has whole numbers, expected real ones" }),
    { "a tensor more", formats.tensors { { "x", "F32", "<f", { 8, 2 }, x }, { "w", "I32", "<i4", { 8 }, y },
        { "y", "I32", "<i4", { 8 }, y } }, "@: 3 tensors, expected 2: is it the file the program was made for?",
        gagen = false },
    { "NaN", tensors(JSON, nil, string.pack("<f", 0 / 0) .. DATA:sub(5)), "@: tensor 'x': row 1, element 1: nan found, "
        .. "expected a finite number that F32 holds" },
    { "infinity", tensors(JSON, nil, DATA:sub(1, 60) .. string.pack("<f", -math.huge) .. DATA:sub(65)),
        "@: tensor 'x': "
        .. "row 8, element 2: -inf found, expected a finite number" },
    { "a class out of range", tensors(JSON, nil, DATA:sub(1, 92) .. "\3\0\0\0"), "@: tensor 'y': row 8, element 1: 3 "
        .. "found, expected a whole number in 0..2",
            gagen = "4: loss: the model gives 3 classes, the data has the class 3",
        note = "@: row 8: found 3" },
    { "a class below 0", tensors(JSON, nil, DATA:sub(1, 92) .. "\xff\xff\xff\xff"),
        "@: tensor 'y': row 8, element 1: -1 "
        .. "found, expected a whole number in 0..2",
            gagen = "the target has the value -1, expected class numbers from 0",
        note = "@: row 8: found -1" },
    { "a folder", { folder = true }, "@: not a regular file",
        gagen = "'rows.safetensors' is a folder, expected a file" },
    { "no file", { missing = true }, "--data ~: has no file %", gagen = "'rows.safetensors' is not there" },
}

return {
    { name = "damaged_npy", spec = 'data { "npy", train = { "x.npy", "y.npy" } }' .. REST,
      good = { ["x.npy"] = X, ["y.npy"] = Y }, first = "x",
      places = { x = { { "x.npy", "kept" } }, y = { { "y.npy", "kept" } } }, mutants = NPY },
    { name = "damaged_tensors", spec = 'data { "tensors", train = "rows.safetensors", target = "y" }'
        .. REST:gsub("model [^\n]*", 'model (function(batch) return linear "fc" { 3 } (batch.x) end)'),
            good = { ["rows.safetensors"] = GOOD },
      first = "file", places = { file = { { "rows.safetensors", "kept" } } }, mutants = TENSORS },
}
