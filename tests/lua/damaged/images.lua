-- Damaged IDX files and binary CIFAR-10 files.
local gzip, REST, formats = ...

local IMAGES = formats.idx({ 8, 3, 2 }, function(i) return i * 5 % 256 end)
local LABELS = formats.idx({ 8 }, function(i) return i % 3 end)
local CIFAR = formats.cifar(0, 2, function(row) return row end, function(row, i) return (row + i) % 256 end)

-- A text with `bytes` in the place of those from byte `at` on.
local function put(text, at, bytes) return text:sub(1, at - 1) .. bytes .. text:sub(at + #bytes) end

-- An extent of the images changed: gagen finds their length wrong, a program another shape.
local function extent(name, axis, value, gagen, program)
    return { name, put(IMAGES, 1 + 4 * axis, string.pack(">I4", value)), program or "expected 8 of 1 x 3 x 2",
        gagen = gagen }
end

local IDX = {
    { "no byte", "", "@: ends after 0 of the 4 bytes of an IDX header: it is cut off" },
    { "cut in the magic", IMAGES:sub(1, 3), "@: ends after 3 of the 4 bytes of an IDX header" },
    { "cut before an extent", IMAGES:sub(1, 12), "@: ends after 0 of the 4 bytes of an extent" },
    { "cut in an extent", IMAGES:sub(1, 14), "@: ends after 2 of the 4 bytes of an extent" },
    { "cut behind the header", IMAGES:sub(1, 16), "@: ends after 0 of the 48 bytes of the images" },
    { "cut in an image", IMAGES:sub(1, 40), "@: ends after 24 of the 48 bytes of the images" },
    { "a byte less", IMAGES:sub(1, -2), "@: ends after 47 of the 48 bytes of the images" },
    { "a byte more", IMAGES .. "\0", "@: bytes after the images, expected the end of the file" },
    { "the file twice", IMAGES .. IMAGES, "@: bytes after the images, expected the end of the file" },
    { "a magic that is none", put(IMAGES, 1, "\x80"), "@: not an IDX file: it begins with 80 00 08 03" },
    { "the magic in another order", put(IMAGES, 1, "\3\8\0\0"), "@: not an IDX file: it begins with 03 08 00 00" },
    { "text", ("1,2,3\n"):rep(9), "@: not an IDX file: it begins with 31 2c 32 2c" },
    { "signed bytes", put(IMAGES, 3, "\9"), "@: IDX type 09, expected 08 (unsigned bytes)" },
    { "floats", put(IMAGES, 3, "\13"), "@: IDX type 0d, expected 08" },
    { "a type that is none", put(IMAGES, 3, "\0"), "@: IDX type 00, expected 08" },
    { "no axes", put(IMAGES, 4, "\0"), "@: IDX of 0 axes, expected 3 or 4 (images)" },
    { "two axes", put(IMAGES, 4, "\2"), "@: IDX of 2 axes, expected 3 or 4 (images)" },
    { "255 axes", put(IMAGES, 4, "\xff"), "@: IDX of 255 axes, expected 3 or 4 (images)" },
    { "an axis more than the bytes", put(IMAGES, 4, "\4"), "@: images of 2 x 330255: expected at most" },
    { "labels in the place of images", LABELS, "@: IDX of 1 axes, expected 3 or 4 (images)" },
    extent("no images", 1, 0, "@: empty IDX file (axis 1 is 0)", "@: empty IDX file (axis 1 is 0)"),
    extent("no lines", 2, 0, "@: empty IDX file (axis 2 is 0)", "@: empty IDX file (axis 2 is 0)"),
    extent("no columns", 3, 0, "@: empty IDX file (axis 3 is 0)", "@: empty IDX file (axis 3 is 0)"),
    extent("an image more", 1, 9, "@: ends after 48 of the 54 bytes of the images",
        "@: 9 rows of 1 x 3 x 2, expected 8"),
    extent("an image less", 1, 7, "@: bytes after the images", "@: 7 rows of 1 x 3 x 2, expected 8"),
    extent("4294967295 images", 1, 0xffffffff, "@: ends after 48 of the 25769803770 bytes of the images",
        "@: 4294967295 rows of 1 x 3 x 2, expected 8"),
    extent("another height", 2, 4, "@: ends after 48 of the 64 bytes of the images",
        "@: 8 rows of 1 x 4 x 2, expected 8"),
    extent("another width", 3, 1, "@: bytes after the images", "@: 8 rows of 1 x 3 x 1, expected 8"),
    extent("a width of 2^31", 3, 1 << 31, "@: images of 3 x 2147483648: expected at most",
        "@: images of 3 x 2147483648: expected at most"),
    { "extents as little-endian numbers", put(IMAGES, 5, string.pack("<I4I4I4", 8, 3, 2)), "@: images of 50331648 x "
        .. "33554432: expected at most" },
    { "an image less with its bytes", formats.idx({ 7, 3, 2 }, function() return 0 end), "@: 7 rows of 1 x 3 x 2, "
        .. "expected 8", gagen = "@: 7 images, but ~/labels has 8 labels: expected as many" },
    { "width and height exchanged", formats.idx({ 8, 2, 3 }, function() return 0 end),
        "@: 8 rows of 1 x 2 x 3, expected 8",
        gagen = false },
    { "a folder", { folder = true }, "@: not a regular file", gagen = "'images' is a folder, expected a file" },
    { "no file", { missing = true }, "--data ~: has no file %", gagen = "'images' is not there" },
    { "labels: no byte", "", "@: ends after 0 of the 4 bytes of an IDX header", at = "labels" },
    { "labels: cut", LABELS:sub(1, -4), "@: ends after 5 of the 8 bytes of the labels", at = "labels" },
    { "labels: a byte more", LABELS .. "\1", "@: bytes after the labels, expected the end of the file", at = "labels" },
    { "labels: images in their place", IMAGES, "@: IDX of 3 axes, expected 1 (labels)", at = "labels" },
    { "labels: one less", formats.idx({ 7 }, function() return 0 end), "@: 7 rows of 1 x 1 x 1, expected 8",
        gagen = "~/images: 8 images, but @ has 7 labels", at = "labels" },
    { "labels: out of range", put(LABELS, 11, "\3"), "@: label 3 of image 3, expected 0..2", at = "labels",
        gagen = "4: loss: the model gives 3 classes, the data has the class 3", note = "@: row 3: found 3" },
    { "labels: 255", put(LABELS, 16, "\xff"), "@: label 255 of image 8, expected 0..2", at = "labels",
        gagen = "4: loss: the model gives 3 classes, the data has the class 255", note = "@: row 8: found 255" },
    { "labels: none", put(LABELS, 5, "\0\0\0\0"), "@: empty IDX file (axis 1 is 0)", at = "labels" },
}

for i, mutant in ipairs(gzip.mutants(gzip.pack(IMAGES))) do
    if i > 1 then IDX[#IDX + 1] = mutant end        -- one byte is no sign of gzip
end
for _, mutant in ipairs {
    { "gzip: an image less inside", gzip.pack(IMAGES:sub(1, -7)), "@: ends after 42 of the 48 bytes of the images" },
    { "gzip: bytes behind the images inside", gzip.pack(IMAGES .. "\0"), "@: bytes after the images" },
    { "gzip: text inside", gzip.pack "1,2,3,4,5\n", "@: not an IDX file: it begins with 31 2c 32 2c" },
    { "gzip twice", gzip.pack(gzip.pack(IMAGES)), "@: not an IDX file: it begins with 1f 8b 08 00" },
} do
    IDX[#IDX + 1] = mutant
end

local SIZE = " bytes, expected records of 3073: it is cut off, or not a binary CIFAR-10 file"
local RECORDS = {
    { "no byte", "", "@: 0" .. SIZE },
    { "a byte", "\1", "@: 1" .. SIZE },
    { "a byte less", CIFAR:sub(1, -2), "@: 6145" .. SIZE },
    { "a byte more", CIFAR .. "\0", "@: 6147" .. SIZE },
    { "half a record", CIFAR:sub(1, 3073 + 1500), "@: 4573" .. SIZE },
    { "no first label", CIFAR:sub(2), "@: 6145" .. SIZE },
    { "CIFAR-100", CIFAR .. "\0\0", "@: 6148" .. SIZE },
    { "gzip", gzip.pack(CIFAR), "@: 6169" .. SIZE },
    { "a label out of range", put(CIFAR, 1, "\10"), "@: label 10 of record 1, expected 0..9",
        program = "@: label 10 of record 1, expected 0..2" },
    { "label 255 in the last record", put(CIFAR, 3074, "\xff"), "@: label 255 of record 2, expected 0..9",
        program = "@: label 255 of record 2, expected 0..2" },
    { "a record less", CIFAR:sub(1, 3073), "@: 1 records found, 2 expected",
        gagen = "2: batch: an epoch of 1 rows has no micro-batch of 2 rows" },
    { "a record more", CIFAR .. CIFAR:sub(1, 3073), "@: 3 records found, 2 expected", gagen = false },
    { "records moved by a byte", CIFAR:sub(-1) .. CIFAR:sub(1, -2), "@: label ", program = "@: label " },
    { "a folder", { folder = true }, "@: not a regular file", gagen = "'batch.bin' is a folder, expected a file" },
    { "no file", { missing = true }, "--data ~: has no file %", gagen = "'batch.bin' is not there" },
}

return {
    { name = "damaged_idx", spec = 'data { "idx", train = { "images", "labels" } }' .. REST,
      good = { images = IMAGES, labels = LABELS }, first = "images",
      places = { images = { { "images", "kept" } }, labels = { { "labels", "kept" } } }, mutants = IDX },
    { name = "damaged_cifar", spec = 'data { "cifar10", train = "batch.bin" }' .. REST,
        good = { ["batch.bin"] = CIFAR },
      first = "file", places = { file = { { "batch.bin", "kept" } } }, mutants = RECORDS },
}
