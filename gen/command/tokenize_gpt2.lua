-- tokenize_gpt2: turns a text into GPT-2's tokens, 16 bits each, behind the header of llm.c's token files, or as
-- numbers; and such numbers into a text.
local byte_names = require "command.byte_names"
local diag = require "base.diag"
local ordered = require "base.ordered"
local lines = require "base.lines"
local text_of = require "base.text"

local gpt2 = { options = { "--documents", "--raw", "--ids", "--decode" },
    vocabulary = "a folder with encoder.json and vocab.bpe, or vocab.json and merges.txt" }

local MAGIC, VERSION, HEADER = 20240520, 1, 256          -- of a token file of llm.c; HEADER: integers
local END_OF_TEXT = "<|endoftext|>"
local MOST = 65536

--- The files of ids and of merges in a folder.
function gpt2.files(folder)
    if host.exists(folder) ~= "folder" then
        diag.fail(folder, "is no folder, expected " .. gpt2.vocabulary, {})
    end
    for _, pair in ipairs { { "encoder.json", "vocab.bpe" }, { "vocab.json", "merges.txt" } } do
        local ids, merges = folder .. "/" .. pair[1], folder .. "/" .. pair[2]
        if host.exists(ids) and host.exists(merges) then return ids, merges end
    end
    diag.fail(folder, "not found there: encoder.json and vocab.bpe, or vocab.json and merges.txt", {})
end

local function read(path)
    local text, message = host.read(path)
    if not text then diag.fail(path, (message:gsub("^.-: ", "", 1)), {}) end
    return text
end

--- The ids of the tokens by name, as in encoder.json.
function gpt2.ids(path)
    local ids, message = host.parse_json(read(path))
    if type(ids) ~= "table" then
        local line, what = (message or ""):match("^line (%d+): (.*)$")
        diag.fail(line and path .. ":" .. line or path, what or "is no object, expected ids by tokens", {})
    end
    local owner = {}
    for name, id in ordered.each(ids) do
        if type(name) ~= "string" or math.type(id) ~= "integer" or id < 0 or id >= MOST then
            diag.fail(path, ("token '%s' is %s, expected an id from 0 to %d"):format(name, tostring(id),
                MOST - 1), {})
        elseif owner[id] then
            diag.fail(path, ("tokens '%s' and '%s' have the same id %d"):format(owner[id], name, id), {})
        end
        owner[id] = name
    end
    return ids
end

local function pack_bytes(ids, path)
    local list, names = {}, byte_names()
    for byte = 0, 255 do
        local id = ids[names[byte]]
        if not id then
            diag.fail(path, ("there is no token '%s', that of byte %d"):format(names[byte], byte), {})
        end
        list[byte + 1] = string.pack("i4", id)
    end
    return table.concat(list)
end

local function pack_merges(ids, path, ids_path)
    local list, seen = {}, {}
    for i, line in ipairs(lines.split(read(path))) do
        line = line:gsub("\r$", "")
        if i > 1 or not line:find("^#version") then
            local left, right = line:match("^(%S+) (%S+)$")
            if not left then
                diag.fail(path .. ":" .. i, ("'%s', expected two tokens with a space between them"):format(
                    line), {})
            end
            for _, name in ipairs { left, right, left .. right } do
                if not ids[name] then
                    diag.fail(path .. ":" .. i, ("token '%s' is not in %s"):format(name, ids_path), {})
                end
            end
            if seen[line] then
                diag.fail(path .. ":" .. i, ("'%s' stands in line %d already"):format(line, seen[line]), {})
            end
            seen[line] = i
            list[#list + 1] = string.pack("i4i4i4", ids[left], ids[right], ids[left .. right])
        end
    end
    return table.concat(list)
end

-- The packed tokens of the text; END_OF_TEXT in it is one token.
local function encode(text, encoder, end_id)
    local parts, from, mark = {}, 1, end_id and string.pack("<I2", end_id)
    while mark do
        local first, last = text:find(END_OF_TEXT, from, true)
        if not first then break end
        parts[#parts + 1], parts[#parts + 2] = encoder(text:sub(from, first - 1)), mark
        from = last + 1
    end
    parts[#parts + 1] = encoder(text:sub(from))
    return table.concat(parts)
end

-- The bytes that a token stands for, by its id.
local function bytes_of(ids)
    local byte_of, names, list = {}, byte_names(), {}
    for byte = 0, 255 do byte_of[names[byte]] = string.char(byte) end
    for name, id in ordered.each(ids) do
        list[id] = name:gsub(utf8.charpattern, function(character) return byte_of[character] or character end)
    end
    return list
end

-- The text of tokens that are given as numbers.
local function decode(text, path, ids, ids_path)
    local list, parts = bytes_of(ids), {}
    for number, line in ipairs(lines.split(text)) do
        for word in line:gmatch "%S+" do
            local id = word:match "^%d+$" and math.tointeger(tonumber(word))
            local bytes = id and list[id]
            if not bytes then
                diag.fail(("%s:%d"):format(path, number), id and ("id %s is not in %s"):format(word, ids_path)
                    or ("'%s', expected ids of tokens"):format(word), {})
            end
            parts[#parts + 1] = bytes
        end
    end
    return table.concat(parts), ("the text of %s token%s"):format(text_of.commas(#parts), #parts == 1 and "" or "s")
end

-- Packed tokens as numbers with spaces between them.
local function numbers_of(tokens)
    local list = {}
    for at = 1, #tokens, 2 do list[#list + 1] = ("%d"):format((string.unpack("<I2", tokens, at))) end
    return table.concat(list, " ") .. "\n"
end

local function check_together(o)
    for _, pair in ipairs { { "--decode", "--documents" }, { "--decode", "--raw" }, { "--decode", "--ids" },
        { "--decode", "--first" }, { "--decode", "--skip" }, { "--ids", "--raw" } } do
        if o.given:has(pair[1]) and o.given:has(pair[2]) then
            diag.fail("tokenize gpt2", ("%s and %s, expected one of them"):format(pair[1], pair[2]), {})
        end
    end
end

function gpt2.run(o, text, path)
    check_together(o)
    local ids_path, merges_path = gpt2.files(o.vocab)
    local ids = gpt2.ids(ids_path)
    if o.decode then return decode(text, path, ids, ids_path) end
    local end_id = ids[END_OF_TEXT]
    if o.documents then
        if not end_id then
            diag.fail(ids_path, ("there is no token '%s', which --documents puts in"):format(END_OF_TEXT), {})
        end
        text = END_OF_TEXT .. text:gsub("\n\n", "\n\n" .. END_OF_TEXT)
    end
    local encoder = host.byte_pairs(pack_bytes(ids, ids_path), pack_merges(ids, merges_path, ids_path))
    local tokens = encode(text, encoder, end_id)
    local all, first = #tokens // 2, (o.skip or 0) + 1
    local last = math.min(all, o.first and first - 1 + o.first or all)
    if first > last then
        diag.fail(path, ("%d tokens, nothing is left behind the %d of --skip"):format(all, first - 1), {})
    end
    tokens = tokens:sub(2 * first - 1, 2 * last)
    local count = last - first + 1
    local header = o.raw and "" or string.pack("<i4i4i4", MAGIC, VERSION, count) .. ("\0"):rep(4 * (HEADER - 3))
    return o.ids and numbers_of(tokens) or header .. tokens, ("%s tokens%s"):format(text_of.commas(count),
        count < all and (" from %s of %s"):format(text_of.commas(first), text_of.commas(all)) or "")
end

return gpt2
