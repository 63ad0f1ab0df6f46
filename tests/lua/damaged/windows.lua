-- Damaged texts and token files of 16 and 32 bits, streamed and kept.
local gzip, _, _, SEQUENCE = ...

local TEXT = "abcd dcba abcd dcba abcd dcba abc"
local NONE = " does not occur in the training text, whose bytes are the vocabulary"
local TEXTS = {
    { "no byte", "", "@: empty, expected text" },
    { "gzip", gzip.pack(TEXT), "@: gzip data, expected text: unpack it first" },
    { "another byte first", "x" .. TEXT:sub(2), "@: byte 0x78 at offset 0" .. NONE },
    { "another byte last", TEXT:sub(1, -2) .. "\n", "@: byte 0x0a at offset 32" .. NONE },
    { "a zero byte", TEXT:sub(1, 9) .. "\0" .. TEXT:sub(11), "@: byte 0x00 at offset 9" .. NONE },
    { "a byte order mark", "\xef\xbb\xbf" .. TEXT:sub(4), "@: byte 0xef at offset 0" .. NONE },
    { "UTF-16", TEXT:gsub(".", "%0\0"), "@: byte 0x00 at offset 1" .. NONE, kept = "@: 66 bytes found, 33 expected" },
    { "upper case", TEXT:upper(), "@: byte 0x41 at offset 0" .. NONE },
    { "a byte less", TEXT:sub(1, -2), "@: 32 bytes found, 33 expected: is it the file the program was made for?",
        gagen = false, streamed = false },
    { "a byte more", TEXT .. "a", "@: 34 bytes found, 33 expected", gagen = false, streamed = false },
    { "a folder", { folder = true }, "@: not a regular file", gagen = "'text/e' is a folder, expected a file" },
    { "no file", { missing = true }, "--data ~: has no file %", gagen = "'text/e' is not there" },
}

local ids = {}
for i = 1, 33 do ids[i] = i * 7 % 50 end

-- The ids with that of place `n`, from 0, replaced, as bytes of `format`.
local function pack(format, n, id)
    local parts = {}
    for i, own in ipairs(ids) do parts[i] = string.pack(format, i - 1 == n and id or own) end
    return table.concat(parts)
end

-- A header as llm.c writes it.
local function header(magic, version, count, fourth)
    return string.pack("<I4I4I4I4", magic, version, count, fourth or 0) .. ("\0"):rep(1008)
end

local SHORT, LONG = pack "<I2", pack "<I4"
local HEAD_16, HEAD_32 = header(20240520, 1, 33), header(20240801, 7, 33)

-- Damages that a file with a header of either width has: `name` says which, `all` are the ids.
local function headed(list, name, magic, version, all)
    local width = #all // 33
    local head = header(magic, version, 33)
    local function says(count, bytes, part)
        return ("@: the header says %d tokens, the file has bytes for %d%s: it is cut off or damaged"):format(count,
            bytes, part and " and a part of one" or "")
    end
    local function add(title, content, message, more)
        local mutant = { name .. ": " .. title, content, message }
        for key, entry in next, more or {} do mutant[key] = entry end
        list[#list + 1] = mutant
    end
    local function magics(title, bytes)
        add(title, bytes .. head:sub(5) .. all, "@: a header of magic number ")
    end
    add("a header cut off", head:sub(1, 1000), "@: ends after 1000 of the 1024 bytes of the header: it is cut off")
    add("a magic number alone", head:sub(1, 4), "@: ends after 4 of the 1024 bytes of the header")
    add("a header alone", head, says(33, 0))
    add("cut in the first token", head .. all:sub(1, width - 1), says(33, 0, true))
    add("cut in the last token", head .. all:sub(1, -2), says(33, 32, true))
    add("a token less than the header says", head .. all:sub(1, -1 - width), says(33, 32))
    add("a token more than the header says", head .. all .. all:sub(1, width), says(33, 34))
    add("a byte more", head .. all .. "\0", says(33, 33, true))
    add("no tokens", header(magic, version, 0), says(0, 0))
    add("no tokens said", header(magic, version, 0) .. all, says(0, 33))
    add("2^31 tokens", header(magic, version, 1 << 31) .. all, says(1 << 31, 33))
    add("2^32 - 1 tokens", header(magic, version, (1 << 32) - 1) .. all, says((1 << 32) - 1, 33))
    add("the number as big-endian", head:sub(1, 8) .. string.pack(">I4", 33) .. head:sub(13) .. all, says(33 << 24, 33))
    add("version 0", header(magic, 0, 33) .. all, ("@: token file of version 0, expected %d"):format(version))
    add("the other version", header(magic, 8 - version, 33) .. all, ("@: token file of version %d, expected %d"):format(
        8 - version, version))
    add("a negative version", header(magic, 0xffffffff, 33) .. all, "@: token file of version 4294967295, expected")
    magics("another magic number", string.pack("<I4", magic + 1))
    magics("a big-endian magic number", string.pack(">I4", magic))
    magics("a damaged magic number", string.pack("<I4", magic ~ 1 << 31))
end

local TOKENS = {
    { "no byte", "", "@: 0 bytes, expected 16-bit tokens: the file is empty" },
    { "a byte", "\1", "@: 1 bytes, expected 16-bit tokens: an odd number is cut off" },
    { "cut in the last token", SHORT:sub(1, -2), "@: 65 bytes, expected 16-bit tokens: an odd number is cut off" },
    { "a byte more", SHORT .. "\0", "@: 67 bytes, expected 16-bit tokens" },
    { "gzip", gzip.pack(SHORT .. SHORT:sub(1, 1)), "@: gzip data, expected tokens: unpack it first" },
    { "a token out of range", pack("<I2", 0, 50), "@: token 50 at place 0, expected 0..49",
        gagen = "3: embedding 'e': the table has 50 rows, the ids go up to 50: ", note = "@: place 0: found 50" },
    { "token 65535", pack("<I2", 32, 65535), "@: token 65535 at place 32, expected 0..49",
        gagen = "3: embedding 'e': the table has 50 rows, the ids go up to 65535: ",
            note = "@: place 32: found 65535" },
    { "big-endian tokens", pack ">I2", "@: token 1792 at place 0, expected 0..49",
        gagen = "3: embedding 'e': the table has 50 rows, the ids go up to 12544: ", note = "@: place 6: found 12544" },
    { "tokens moved by a byte", SHORT:sub(2) .. "\0", "@: token 3584 at place 0, expected 0..49",
        gagen = "3: embedding 'e': the table has 50 rows, the ids go up to 12544: ", note = "@: place 5: found 12544" },
    { "a token less", SHORT:sub(1, -3), "@: 32 tokens found, 33 expected", gagen = false, streamed = false },
    { "a token more", SHORT .. "\0\0", "@: 34 tokens found, 33 expected", gagen = false, streamed = false },
    { "tokens of 32 bits", HEAD_32 .. LONG, "@: 32-bit tokens found, 16-bit tokens expected",
        gagen = "@: tokens of 4 bytes, the first file has 2" },
    { "the magic number of 32 bits", HEAD_32 .. SHORT, "@: the header says 33 tokens, the file has bytes for 16" },
    { "a folder", { folder = true }, "@: not a regular file", gagen = false },
    { "no file", { missing = true }, "--data ~: has no file %", gagen = false },
}
headed(TOKENS, "16 bits", 20240520, 1, SHORT)

local WIDE = {
    { "tokens of 16 bits", HEAD_16 .. SHORT, "@: 16-bit tokens found, 32-bit tokens expected",
        gagen = "@: tokens of 2 bytes, the first file has 4" },
    { "no header", LONG, "@: 16-bit tokens found, 32-bit tokens expected",
        gagen = "@: tokens of 2 bytes, the first file has 4" },
    { "a token out of range", HEAD_32 .. pack("<I4", 16, 50), "@: token 50 at place 16, expected 0..49",
        gagen = "3: embedding 'e': the table has 50 rows, the ids go up to 50: ", note = "@: place 16: found 50" },
    { "token 2^31", HEAD_32 .. pack("<I4", 16, 1 << 31), "@: token 2147483648 at place 16, expected 0..49",
        gagen = "@: token 2147483648 at place 16, expected 0..2147483646" },
    { "token 2^32 - 1", HEAD_32 .. pack("<I4", 32, (1 << 32) - 1), "@: token 4294967295 at place 32, expected 0..49",
        gagen = "@: token 4294967295 at place 32, expected 0..2147483646" },
    { "a token less with its header", header(20240801, 7, 32) .. LONG:sub(1, -5), "@: 32 tokens found, 33 expected",
        gagen = false, streamed = false },
}
headed(WIDE, "32 bits", 20240801, 7, LONG)

-- A program of train = t1 and t2, streamed, and eval = e, kept; the mutants take the place of t2 or e. gagen is tried
-- with the first place: for text with e, since the bytes of train are the vocabulary.
local function group(name, kind, good, second, mutants)
    local places = { { name .. "/t2", "streamed" }, { name .. "/e", "kept" } }
    if kind == "text" then places[1], places[2] = places[2], places[1] end
    return { name = "damaged_" .. name, first = "file", mutants = mutants,
        spec = ('data { "%s", train = "%s/t*", eval = "%s/e", context = 4, stream = true }'):format(kind, name, name)
            .. SEQUENCE,
        good = { [name .. "/t1"] = good, [name .. "/t2"] = second, [name .. "/e"] = good },
        places = { file = places } }
end

return {
    group("text", "text", TEXT, TEXT, TEXTS),
    group("tokens", "tokens", SHORT, HEAD_16 .. SHORT, TOKENS),
    group("tokens_32", "tokens", HEAD_32 .. LONG, HEAD_32 .. LONG, WIDE),
}
