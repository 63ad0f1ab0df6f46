-- `gagen tokenize` against ids of other tokenizers, in tests/reference/tokens (made by tests/reference/token_ids.py),
-- and ids written by hand for small vocabularies; the files; refusals.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local TOKENS = "tests/reference/tokens/"

local function shared(t)
    return t.environment "GAGEN_DATA" or t.not_run("GAGEN_DATA is not set")
end

local function tokenize(t, ...)
    local result = t.load("tests/lua/programs.lua")(t).gagen { "tokenize", ... }
    t.equal(result.status, 0, result.err)
    return result.err
end

local function lines_of(path)
    local list = {}
    for line in assert(host.read(path)):gmatch("([^\n]*)\n") do list[#list + 1] = line end
    return list
end

local UNPACK = { I32 = "<i4", U8 = "B" }

-- The fields of a file: lists of rows, each a list of numbers; a field without axes: a list.
local function fields_of(t, path)
    local text = assert(host.read(path, 1073741824))
    local start, fields = 8 + string.unpack("<I8", text), {}
    t.equal(start % 8, 0)
    for name, entry in next, t.load("tests/lua/json.lua").read(text:sub(9, start)) do
        local width, at, list = entry.shape[2] or 1, start + entry.data_offsets[1] + 1, {}
        for row = 1, entry.shape[1] do
            list[row] = {}
            for i = 1, width do list[row][i], at = string.unpack(UNPACK[entry.dtype], text, at) end
        end
        t.equal(at - 1 - start, entry.data_offsets[2], name)
        fields[name] = list
    end
    return fields
end

-- The ids without the first, the last and the padding.
local function inner(fields, row)
    local n, list = 0, {}
    for _, one in ipairs(fields.mask[row]) do n = n + one end
    for i = 2, n - 1 do list[i - 1] = fields.ids[row][i] end
    return table.concat(list, " "), n
end

-- -- the tokenizers of others --------------------------------------------------------------------

add("token files of llm.c and nanoGPT, byte for byte", function(t)
    local data, folder = shared(t), t.temp()
    local text = assert(host.read(data .. "/tinyshakespeare/input.txt"))
    t.write(folder .. "/first.txt", text:sub(1, #text * 9 // 10))
    t.write(folder .. "/rest.txt", text:sub(#text * 9 // 10 + 1))
    for _, case in ipairs {
        { "tiny_shakespeare_val", data .. "/tinyshakespeare/input.txt", "--documents", "--first", "32768" },
        { "tiny_shakespeare_train", data .. "/tinyshakespeare/input.txt", "--documents", "--skip", "32768" },
        { "nanogpt_shakespeare_train", folder .. "/first.txt", "--raw" },
        { "nanogpt_shakespeare_val", folder .. "/rest.txt", "--raw" },
    } do
        local file = ("%s/%s.bin"):format(folder, case[1])
        tokenize(t, "gpt2", case[2], file, "--vocab", data .. "/gpt2bpe", table.unpack(case, 3))
        if host.read(file) ~= assert(host.read(("%s/gpt2tokens/%s.bin"):format(data, case[1]))) then
            error(case[1] .. ": other bytes", 0)
        end
    end
end)

local function hard_tsv(t)
    local path, rows = t.temp() .. "/hard.tsv", { "sentence\tlabel\n" }
    for i, line in ipairs(lines_of(TOKENS .. "hard_lines.txt")) do rows[i + 1] = line .. "\t" .. i .. "\n" end
    t.write(path, table.concat(rows))
    return path
end

local function compare_rows(t, tsv, expected, count)
    local data, file = shared(t), t.temp() .. "/rows.safetensors"
    tokenize(t, "bert", tsv, file, "--vocab", data .. "/bert/bert-base-uncased-vocab.txt", "--length", "512")
    local fields, wanted = fields_of(t, file), lines_of(TOKENS .. expected)
    t.equal({ #wanted, #fields.ids }, { count, count })
    for row, line in ipairs(wanted) do
        local found, n = inner(fields, row)
        t.equal(found, line, "row " .. row)
        t.equal({ fields.ids[row][1], fields.ids[row][n] }, { 101, 102 })
        for i = n + 1, 512 do t.equal(fields.ids[row][i] + fields.mask[row][i], 0) end
    end
    return fields
end

add("the pieces of all sentences of SST-2's dev.tsv", function(t)
    local fields = compare_rows(t, shared(t) .. "/sst2/dev.tsv", "sst2_dev.txt", 872)
    local ones = 0
    for _, class in ipairs(fields.label) do ones = ones + class[1] end
    t.equal(ones, 444)
    t.equal(fields.types, nil)
end)

add("the pieces of hard lines", function(t)
    compare_rows(t, hard_tsv(t), "hard_bert.txt", 100)
end)

add("GPT-2's tokens of hard lines", function(t)
    local data, folder, found = shared(t), t.temp(), {}
    t.write(folder .. "/lines.txt", table.concat(lines_of(TOKENS .. "hard_lines.txt"), "<|endoftext|>"))
    tokenize(t, "gpt2", folder .. "/lines.txt", folder .. "/lines.bin", "--raw", "--vocab", data .. "/gpt2bpe")
    for id in assert(host.read(folder .. "/lines.bin")):gmatch("..") do
        found[#found + 1] = string.unpack("<I2", id)
    end
    local wanted = table.concat(lines_of(TOKENS .. "hard_gpt2.txt"), " 50256 "):gsub("  +", " ")
    t.equal(table.concat(found, " "), wanted)
end)

add("pairs of texts, cut and with types", function(t)
    local data, folder, rows = shared(t), t.temp(), { "a\tb\tclass\n" }
    local hard, wanted = lines_of(TOKENS .. "hard_lines.txt"), lines_of(TOKENS .. "pairs.txt")
    for i = 1, 100, 2 do rows[#rows + 1] = ("%s\t%s\t%d\n"):format(hard[i], hard[i + 1], i) end
    t.write(folder .. "/pairs.tsv", table.concat(rows))
    tokenize(t, "bert", folder .. "/pairs.tsv", folder .. "/pairs.safetensors", "--length", "16", "--text", "a",
        "--pair", "b", "--class", "class", "--vocab", data .. "/bert/bert-base-uncased-vocab.txt")
    local fields = fields_of(t, folder .. "/pairs.safetensors")
    for row = 1, 50 do
        for i, name in ipairs { "ids", "types", "mask" } do
            t.equal(table.concat(fields[name][row], " "), wanted[3 * row - 3 + i], name .. " of row " .. row)
        end
        t.equal(fields.class[row], { 2 * row - 1 })
    end
end)

-- -- by hand -------------------------------------------------------------------------------------

local PIECES = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\nfil\n##m\n##ms\nis\n.\ncafe\na\u{1d165}\u{302f}\na\u{302f}\u{1d165}\n"

local function small_bert(t, rows, ...)
    local folder = t.temp()
    t.write(folder .. "/vocab.txt", PIECES)
    t.write(folder .. "/rows.tsv", rows)
    local said = tokenize(t, "bert", folder .. "/rows.tsv", folder .. "/rows.safetensors", "--vocab",
        folder .. "/vocab.txt", ...)
    return fields_of(t, folder .. "/rows.safetensors"), said, folder
end

add("rows of a small vocabulary", function(t)
    local fields, said = small_bert(t, "sentence\tlabel\r\nThe films.\t1\r\n\t0\r\nCAFÉ is filmed\t3\r\n", "--length",
        "6", "--types")
    t.equal(fields.ids, { { 2, 4, 5, 7, 9, 3 }, { 2, 3, 0, 0, 0, 0 }, { 2, 10, 8, 1, 3, 0 } })
    t.equal(fields.mask, { { 1, 1, 1, 1, 1, 1 }, { 1, 1, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1, 0 } })
    t.equal(fields.types, { { 0, 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0, 0 } })
    t.equal(fields.label, { { 1 }, { 0 }, { 3 } })
    t.match(said, "^wrote .*: 3 rows of 6 ids, 0 cut, the longest has 6; fields ids, mask, types, label;")
end)

-- U+302F has the combining class 224, U+1D165 216, U+0315 232 and U+0902 0: the last ends what is put into
-- order; the last two are dropped as nonspacing marks
add("marks in canonical order", function(t)
    local fields = small_bert(t, "sentence\tlabel\na\u{302f}\u{1d165}\t0\na\u{1d165}\u{302f}\t0\n"
        .. "a\u{302f}\u{315}\u{1d165}\t0\na\u{302f}\u{902}\u{1d165}\t0\n", "--length", "3")
    t.equal(fields.ids, { { 2, 11, 3 }, { 2, 11, 3 }, { 2, 11, 3 }, { 2, 12, 3 } })
end)

add("some of the rows, cut", function(t)
    local rows = { "label\tid\tsentence\n" }
    for i = 1, 9 do rows[i + 1] = ("%d\tx%d\t%s\n"):format(-1, i, ("the "):rep(i)) end
    local fields, said = small_bert(t, "\xef\xbb\xbf" .. table.concat(rows), "--length", "5", "--skip", "2",
        "--first", "3")
    t.equal(fields.ids, { { 2, 4, 4, 4, 3 }, { 2, 4, 4, 4, 3 }, { 2, 4, 4, 4, 3 } })
    t.equal(fields.label, { { -1 }, { -1 }, { -1 } })
    t.match(said, ": 3 rows of 5 ids, 2 cut, the longest has 7; fields ids, mask, label;")
end)

-- Names of all bytes, then "ab" = 256, "abc" = 257, " a" = 258, "aa" = 259, end of text = 260.
local function small_gpt2(t)
    local folder, ids, n = t.temp(), {}, 256
    for byte = 0, 255 do
        local seen = byte >= 33 and byte <= 126 or byte >= 161 and byte ~= 173
        ids[utf8.char(seen and byte or n)] = byte
        n = n + (seen and 0 or 1)
    end
    ids["ab"], ids["abc"], ids["\u{120}a"], ids["aa"], ids["<|endoftext|>"] = 256, 257, 258, 259, 260
    t.write(folder .. "/vocab.json", host.json(ids))
    t.write(folder .. "/merges.txt", "#version: 0.2\na b\nab c\n\u{120} a\na a\n")
    return folder
end

add("tokens of a small vocabulary", function(t)
    local folder = small_gpt2(t)
    local function tokens(text, ...)
        t.write(folder .. "/text.txt", text)
        local said = tokenize(t, "gpt2", folder .. "/text.txt", folder .. "/text.bin", "--vocab", folder, ...)
        local bytes, list = assert(host.read(folder .. "/text.bin")), {}
        local magic, version, count = string.unpack("<i4i4i4", bytes)
        t.equal({ magic, version, count }, { 20240520, 1, (#bytes - 1024) // 2 })
        t.equal(bytes:sub(13, 1024), ("\0"):rep(1012))
        for id in bytes:sub(1025):gmatch("..") do list[#list + 1] = string.unpack("<I2", id) end
        return list, said
    end
    t.equal((tokens "abc ab aabb"), { 257, 32, 256, 258, 256, 98 })
    t.equal((tokens "aaaaa"), { 259, 259, 97 })
    t.equal((tokens "\u{e9}\n\n\n a"), { 195, 169, 10, 10, 10, 258 })
    t.equal((tokens "a<|endoftext|>b<|endoftext"), { 97, 260, 98, 60, 124, 101, 110, 100, 111, 102, 116, 101, 120, 116 })
    t.equal((tokens("a\n\nb", "--documents")), { 260, 97, 10, 10, 260, 98 })
    local list, said = tokens("abcdefg", "--skip", "1", "--first", "2")
    t.equal(list, { 100, 101 })
    t.match(said, ": 2 tokens from 2 of 5\n$")
end)

add("tokens as numbers, and their text again", function(t)
    local folder = small_gpt2(t)
    local text = "abc ab\u{e9}\n\0aabb<|endoftext|> ab\u{1f600}"
    local function run(from, to, ...)
        tokenize(t, "gpt2", folder .. "/" .. from, folder .. "/" .. to, "--vocab", folder, ...)
        return host.read(folder .. "/" .. to)
    end
    t.write(folder .. "/text.txt", text)
    t.equal(run("text.txt", "ids.txt", "--ids", "--first", 3), "257 32 256\n")
    run("text.txt", "ids.txt", "--ids")
    t.equal(run("ids.txt", "again.txt", "--decode"), text)
    t.write(folder .. "/ids.txt", "257 32\n\n 260 255 ")
    t.equal(run("ids.txt", "again.txt", "--decode"), "abc <|endoftext|>\xff")
    t.write(folder .. "/ids.txt", "257 \n261\n")
    for _, case in ipairs { { "ids.txt:2: id 261 is not in ", "--decode" },
        { "text.txt:1: 'abc', expected ids of tokens", "--decode", from = "text.txt" },
        { "--decode and --raw, expected one of them", "--decode", "--raw" },
        { "--ids and --raw, expected one of them", "--raw", "--ids" } } do
        local result = t.load("tests/lua/programs.lua")(t).gagen { "tokenize", "gpt2", folder .. "/"
            .. (case.from or "ids.txt"), folder .. "/out", "--vocab", folder, table.unpack(case, 2) }
        t.equal({ result.status, host.exists(folder .. "/out") }, { 1, false }, result.err)
        t.contains(result.err, case[1])
    end
end)

add("a word of a million letters", function(t)
    local folder = small_gpt2(t)
    t.write(folder .. "/text.txt", ("ab"):rep(500000))
    tokenize(t, "gpt2", folder .. "/text.txt", folder .. "/text.bin", "--raw", "--vocab", folder)
    t.equal(host.read(folder .. "/text.bin"), string.pack("<I2", 256):rep(500000))
end)

add("data reads the written files", function(t)
    local _, _, folder = small_bert(t, "sentence\tlabel\n" .. ("The films.\t1\nIs.\t0\n"):rep(8), "--length", "6",
        "--types")
    t.write(folder .. "/spec.lua", [[
data      { "tensors", train = "rows.safetensors", target = "label" }
batch     (4)
model(function(batch)
    local x = embedding "words" { 13, 4 } (batch.ids) + embedding "types" { 2, 4 } (batch.types)
    x = attend { heads = 1 } (x, x, x, batch.mask)
    return linear "head" { 2 } (pick { axis = 2, index = 1 } (x))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { epochs = 1 }
]])
    local result = t.load("tests/lua/programs.lua")(t).gagen { "check", folder .. "/spec.lua",
        env = { "GAGEN_DATA=" .. folder } }
    t.equal(result.status, 0, result.err)
end)

-- -- what is refused -----------------------------------------------------------------------------

-- { part of the message, arguments after `tokenize`... }; all files are in one folder.
local REFUSED = {
    { "tokenize: unknown method 'brt', expected one of bert, gpt2\ndid you mean 'bert'?", "brt", "rows.tsv", "out" },
    { "tokenize: expected FILE", "bert", "rows.tsv" },
    { "tokenize bert: --vocab is missing, expected a vocab.txt", "bert", "rows.tsv", "out", "--length", "6" },
    { "tokenize gpt2: takes no --length\nit takes: --vocab, --first, --skip, --documents, --raw", "gpt2", "rows.tsv",
        "out", "--length", "6", "--vocab", "." },
    { "tokenize bert: takes no --raw", "bert", "rows.tsv", "out", "--raw" },
    { "tokenize bert: --length is missing", "bert", "rows.tsv", "out", "--vocab", "vocab.txt" },
    { "--length: 2 found, expected 3 or more", "bert", "rows.tsv", "out", "--vocab", "vocab.txt", "--length", "2" },
    { "--length: '0', expected 1..65536", "bert", "rows.tsv", "out", "--vocab", "vocab.txt", "--length", "0" },
    { "none.tsv: No such file", "bert", "none.tsv", "out", "--vocab", "vocab.txt", "--length", "6" },
    { "rows.tsv: is a file that this command reads", "bert", "rows.tsv", "./rows.tsv", "--vocab", "vocab.txt",
        "--length", "6" },
    { "vocab.txt: is a file that this command reads", "bert", "rows.tsv", "vocab.txt", "--vocab", "vocab.txt",
        "--length", "6" },
    { "no/such: there is no such folder", "bert", "rows.tsv", "no/such/out", "--vocab", "vocab.txt", "--length", "6" },
    { "bytes.tsv:3: byte 0xe9 at offset 24 begins no character, expected UTF-8", "bert", "bytes.tsv", "out",
        "--vocab", "vocab.txt", "--length", "6" },
    { "rows.tsv:1: there is no column 'text', expected --text COLUMN, one of: sentence, label", "bert", "rows.tsv",
        "out", "--vocab", "vocab.txt", "--length", "6", "--text", "text" },
    { "rows.tsv:1: there is no column 'labl', expected --class COLUMN, one of: sentence, label\n", "bert", "rows.tsv",
        "out", "--vocab", "vocab.txt", "--length", "6", "--class", "labl" },
    { "cells.tsv:4: 3 columns found, expected 2 as in line 1", "bert", "cells.tsv", "out", "--vocab", "vocab.txt",
        "--length", "6" },
    { "class.tsv:2: the label is 'good', expected a whole number", "bert", "class.tsv", "out", "--vocab", "vocab.txt",
        "--length", "6" },
    { "header.tsv:1: the target is called 'ids'", "bert", "header.tsv", "out", "--vocab", "vocab.txt", "--length",
        "6", "--class", "ids" },
    { "header.tsv:1: two columns are called 'a'", "bert", "header.tsv", "out", "--vocab", "vocab.txt", "--length",
        "6", "--text", "a" },
    { "rows.tsv: 2 rows and --skip 2, nothing is left", "bert", "rows.tsv", "out", "--vocab", "vocab.txt", "--length",
        "6", "--skip", "2" },
    { "empty.tsv: is empty", "bert", "empty.tsv", "out", "--vocab", "vocab.txt", "--length", "6" },
    { "twice.txt:6: 'the' stands in line 5 already", "bert", "rows.tsv", "out", "--vocab", "twice.txt", "--length", "6" },
    { "rows.tsv: there is no [UNK]", "bert", "rows.tsv", "out", "--vocab", "rows.tsv", "--length", "6" },
    { "rows.tsv: is no folder, expected a folder with encoder.json", "gpt2", "rows.tsv", "out", "--vocab", "rows.tsv" },
    { "nothing: not found there: encoder.json and vocab.bpe", "gpt2", "rows.tsv", "out", "--vocab", "nothing" },
    { "merge/merges.txt:3: token 'xyz' is not in merge/vocab.json", "gpt2", "rows.tsv", "out", "--vocab", "merge" },
    { "line/merges.txt:2: 'a b c', expected two tokens", "gpt2", "rows.tsv", "out", "--vocab", "line" },
    { "same/merges.txt:3: 'a b' stands in line 2 already", "gpt2", "rows.tsv", "out", "--vocab", "same" },
    { "json/vocab.json:2: ", "gpt2", "rows.tsv", "out", "--vocab", "json" },
    { "ids/vocab.json: tokens 'a' and 'b' have the same id 1", "gpt2", "rows.tsv", "out", "--vocab", "ids" },
    { "large/vocab.json: token 'a' is 65536, expected an id from 0 to 65535", "gpt2", "rows.tsv", "out", "--vocab",
        "large" },
    { "bytes/vocab.json: there is no token '\u{100}', that of byte 0", "gpt2", "rows.tsv", "out", "--vocab", "bytes" },
    { "rows.tsv: 31 tokens, nothing is left behind the 99 of --skip", "gpt2", "rows.tsv", "out", "--vocab", "good",
        "--skip", "99" },
    { "good/vocab.json: there is no token '<|endoftext|>', which --documents", "gpt2", "rows.tsv", "out", "--vocab",
        "good", "--documents" },
}

local function write_refused(t, folder)
    local small = small_gpt2(t)
    local ids = host.read(small .. "/vocab.json"):gsub(',%s*"<|endoftext|>": 260', ""):gsub('"<|endoftext|>": 260,', "")
    for name, text in next, {
        ["vocab.txt"] = PIECES, ["twice.txt"] = PIECES:gsub("the\n", "the\nthe\n"), ["empty.tsv"] = "",
        ["rows.tsv"] = "sentence\tlabel\nthe film\t1\nthe\t0\n", ["bytes.tsv"] = "sentence\tlabel\nthe\t1\ncaf\xe9\t0\n",
        ["cells.tsv"] = "sentence\tlabel\nthe\t1\nthe\t0\nthe\t\t1\n", ["class.tsv"] = "sentence\tlabel\nthe\tgood\n",
        ["header.tsv"] = "sentence\tids\ta\ta\nthe\t1\t2\t3\n", ["nothing/x"] = "",
        ["merge/vocab.json"] = ids, ["merge/merges.txt"] = "#version: 0.2\na b\nxyz x\n",
        ["line/vocab.json"] = ids, ["line/merges.txt"] = "#version: 0.2\na b c\n",
        ["same/vocab.json"] = ids, ["same/merges.txt"] = "#version: 0.2\na b\na b\n",
        ["json/vocab.json"] = '{ "a": 1,\n"b" }', ["json/merges.txt"] = "",
        ["ids/vocab.json"] = '{ "a": 1, "b": 1 }', ["ids/merges.txt"] = "",
        ["large/vocab.json"] = '{ "a": 65536 }', ["large/merges.txt"] = "",
        ["bytes/vocab.json"] = '{ "a": 1 }', ["bytes/merges.txt"] = "",
        ["good/vocab.json"] = ids, ["good/merges.txt"] = "#version: 0.2\na b\nab c\n",
    } do
        t.write(folder .. "/" .. name, text)
    end
end

add("wrong files and options", function(t)
    local folder = t.temp()
    write_refused(t, folder)
    for _, case in ipairs(REFUSED) do
        local result = t.load("tests/lua/programs.lua")(t).gagen { cwd = folder, "tokenize", table.unpack(case, 2) }
        t.equal({ result.status, result.out }, { 1, "" }, result.err)
        t.contains(result.err, case[1])
        t.equal(host.exists(folder .. "/out"), false)
    end
    t.equal(host.read(folder .. "/rows.tsv"), "sentence\tlabel\nthe film\t1\nthe\t0\n")
end)

return tests
