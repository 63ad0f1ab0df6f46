-- tokenize_bert: turns the rows of a TSV file into ids of BERT's uncased tokenizer, in a safetensors file for
-- data { "tensors" }: ids (rows, length), mask (rows, length), types (rows, length) if asked for, the target (rows).
local diag = require "base.diag"
local lines = require "base.lines"
local ordered = require "base.ordered"
local safetensors = require "command.safetensors"
local text_of = require "base.text"

local bert = { options = { "--length", "--text", "--pair", "--class", "--types" },
    vocabulary = "a vocab.txt with a piece in each line" }

local SPECIAL = { "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]" }
local BYTES = 4                                          -- of an id

-- The word pieces of the vocabulary in order, and the packed ids of the special ones.
local function read_vocabulary(path)
    local text, message = host.read(path)
    if not text then diag.fail(path, (message:gsub("^.-: ", "", 1)), {}) end
    local list, line_of, special = {}, {}, {}
    for i, line in ipairs(lines.split(text)) do
        local piece = line:gsub("\r$", "")
        if line_of[piece] then
            diag.fail(path .. ":" .. i, ("'%s' stands in line %d already"):format(piece, line_of[piece]), {})
        end
        list[i], line_of[piece] = piece, i
    end
    for _, name in ipairs(SPECIAL) do
        if line_of[name] then
            special[name] = string.pack("<i4", line_of[name] - 1)
        elseif name ~= "[MASK]" then
            diag.fail(path, ("there is no %s, expected %s"):format(name, bert.vocabulary), {})
        end
    end
    return list, special, line_of["[UNK]"] - 1
end

-- A function from text to packed ids. Special pieces, such as [MASK], are recognised in the text.
local function encoder_of(path)
    local list, special, unknown = read_vocabulary(path)
    local pieces = host.word_pieces(list, unknown)
    local function encode(text)
        local parts, from = {}, 1
        for first, name in text:gmatch("()(%[%u+%])") do
            if special[name] then
                parts[#parts + 1], parts[#parts + 2] = pieces(text:sub(from, first - 1)), special[name]
                from = first + #name
            end
        end
        if from == 1 then return pieces(text) end
        parts[#parts + 1] = pieces(text:sub(from))
        return table.concat(parts)
    end
    return encode, special
end

local function cells_of(line)
    local cells = {}
    for cell in (line:gsub("\r$", "") .. "\t"):gmatch("([^\t]*)\t") do cells[#cells + 1] = cell end
    return cells
end

local function column(path, cells, option, name)
    local found
    for i, cell in ipairs(cells) do
        if cell == name and found then diag.fail(path .. ":1", ("two columns are called '%s'"):format(name), {}) end
        found = cell == name and i or found
    end
    if not found then
        diag.fail(path .. ":1", ("there is no column '%s', expected %s COLUMN, one of: %s"):format(name, option,
            table.concat(cells, ", ")), { hint = diag.suggest(name, cells) })
    end
    return found
end

-- The numbers of the named columns, from the header line.
local function columns_of(o, path, header)
    local cells = cells_of(header:gsub("^\xef\xbb\xbf", ""))
    local c = { count = #cells, text = column(path, cells, "--text", o.text or "sentence"),
        target = column(path, cells, "--class", o.class or "label"),
        pair = o.pair and column(path, cells, "--pair", o.pair) }
    c.name = cells[c.target]
    if not c.name:find("^%a[%w_]*$") or #c.name > 63 or ordered.find({ "ids", "mask", "types" }, c.name) then
        diag.fail(path .. ":1", ("the target is called '%s', expected letters, digits and _, a letter first, "
            .. "and not ids, mask or types"):format(c.name), {})
    end
    return c
end

-- The class of a row as packed bytes.
local function class_of(cell, place, name)
    local value = cell:find("^%-?%d+$") and math.tointeger(tonumber(cell))
    if not value or value < -0x80000000 or value > 0x7fffffff then
        diag.fail(place, ("the %s is '%s', expected a whole number: the class"):format(name, cell), {})
    end
    return string.pack("<i4", value)
end

-- The ids that two texts keep if `room` ids fit: the shorter text keeps all of its own up to half of the room.
local function share(a, b, room)
    if a + b <= room then return a, b end
    local short, long = math.min(a, b), math.max(a, b)
    long = math.max(short, room - short)
    if short + long > room then short, long = room // 2, room - room // 2 end
    if a > b then return long, short end
    return short, long
end

-- One row: [CLS] a [SEP], or [CLS] a [SEP] b [SEP], cut or padded to o.length.
local function add_row(rows, o, special, a, b)
    local n, m = #a // BYTES, b and #b // BYTES or 0
    local room = o.length - (b and 3 or 2)
    local kept, kept_pair = share(n, m, room)
    if not b then kept, kept_pair = math.min(n, room), 0 end
    local first, second = kept + 2, b and kept_pair + 1 or 0
    local empty = o.length - first - second
    rows.longest, rows.cut = math.max(rows.longest, n + m + o.length - room), rows.cut + (n + m > room and 1 or 0)
    rows.ids[#rows.ids + 1] = table.concat { special["[CLS]"], a:sub(1, kept * BYTES), special["[SEP]"],
        b and b:sub(1, kept_pair * BYTES) .. special["[SEP]"] or "", special["[PAD]"]:rep(empty) }
    rows.mask[#rows.mask + 1] = ("\1"):rep(first + second) .. ("\0"):rep(empty)
    rows.types[#rows.types + 1] = ("\0"):rep(first) .. ("\1"):rep(second) .. ("\0"):rep(empty)
end

local function check_length(o)
    local least = o.pair and 5 or 3
    if not o.length then
        diag.fail("tokenize bert", "--length is missing, expected the ids of a row: all rows have as many", {})
    elseif o.length < least then
        diag.fail("tokenize bert", ("--length: %d found, expected %d or more: a row has the ids of its text and "
            .. "%d others"):format(o.length, least, least == 5 and 3 or 2), {})
    end
end

local function encode_rows(o, list, path, columns)
    local encode, special = encoder_of(o.vocab)
    local rows = { ids = {}, mask = {}, types = {}, targets = {}, longest = 0, cut = 0 }
    local skipped = o.skip or 0
    for i = 2 + skipped, math.min(#list, o.first and 1 + skipped + o.first or #list) do
        local place, cells = ("%s:%d"):format(path, i), cells_of(list[i])
        if #cells ~= columns.count then
            diag.fail(place, ("%d columns found, expected %d as in line 1"):format(#cells, columns.count), {})
        end
        rows.targets[i - 1 - skipped] = class_of(cells[columns.target], place, columns.name)
        add_row(rows, o, special, encode(cells[columns.text]), columns.pair and encode(cells[columns.pair]))
    end
    if #rows.targets == 0 then
        diag.fail(path, ("%d rows%s, nothing is left"):format(#list - 1,
            o.skip and (" and --skip %d"):format(o.skip) or ""), {})
    end
    return rows
end

function bert.run(o, text, path)
    check_length(o)
    local list = lines.split(text)
    if #list == 0 then diag.fail(path, "is empty, expected a header and rows", {}) end
    local columns = columns_of(o, path, list[1])
    local rows = encode_rows(o, list, path, columns)
    local count = #rows.targets
    local tensors = ordered.map()
    tensors:set("ids", { dtype = "I32", shape = { count, o.length }, bytes = table.concat(rows.ids) })
    tensors:set("mask", { dtype = "U8", shape = { count, o.length }, bytes = table.concat(rows.mask) })
    if o.types or o.pair then
        tensors:set("types", { dtype = "U8", shape = { count, o.length }, bytes = table.concat(rows.types) })
    end
    tensors:set(columns.name, { dtype = "I32", shape = { count }, bytes = table.concat(rows.targets) })
    local said = ("%s rows of %d ids, %s cut, the longest has %s; fields %s; data { \"tensors\", train = ..., "
        .. "target = \"%s\" }"):format(text_of.commas(count), o.length, text_of.commas(rows.cut),
        text_of.commas(rows.longest), table.concat(tensors.keys, ", "), columns.name)
    return safetensors.bytes(tensors), said
end

return bert
