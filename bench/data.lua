-- data: makes random rows in the formats of bench/specs, so that `make bench` needs no files of others; times of
-- updates do not depend on the values. It runs as a process of its own: memory that it takes would count as that of
-- programs that are measured later.
--
--   host bench/data.lua FOLDER        makes the files that are not there

-- Rows for 64 micro-steps of 64 images, 8 of 500; tokens for 8 micro-steps of 32 rows of 1024; 8 of 64 sequences.
local IMAGES, TOKENS, SEQUENCES = 64 * 64, 8 * 32 * 1024 + 1, 8 * 64

-- A function that returns random integers of 0 to n - 1, the same in each run (a generator of Numerical Recipes).
local function generator(n)
    local state = 1
    return function()
        state = (state * 1664525 + 1013904223) & 0xffffffff
        return (state >> 8) % n
    end
end

local function numbers(count, below, format)
    local next_number, parts = generator(below), {}
    for i = 1, count do parts[i] = string.pack(format, next_number()) end
    return table.concat(parts)
end

-- Random bytes: a block again and again.
local function bytes(count)
    local block = numbers(65521, 256, "B")
    return block:rep(count // #block + 1):sub(1, count)
end

local function records(count)
    local label, pixels, parts = generator(10), bytes(count * 3072), {}
    for i = 0, count - 1 do
        parts[#parts + 1] = string.char(label()) .. pixels:sub(i * 3072 + 1, (i + 1) * 3072)
    end
    return table.concat(parts)
end

-- llm.c's header, then ids of 16 bits.
local function tokens(vocabulary)
    return string.pack("<i4i4i4", 20240520, 1, TOKENS) .. ("\0"):rep(1024 - 12) .. numbers(TOKENS, vocabulary, "<I2")
end

-- Ids of sequences, all of one type, of which some are hidden at the end; a class for each.
local function sequences(vocabulary, length)
    local seen, hidden = generator(length), {}
    for i = 1, SEQUENCES do
        local n = length // 2 + seen() // 2
        hidden[i] = ("\1"):rep(n) .. ("\0"):rep(length - n)
    end
    local shape, body, entries, at = { SEQUENCES, length }, {}, {}, 0
    local function add(name, dtype, extents, bytes)
        body[#body + 1] = bytes
        entries[#entries + 1] = ('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(name, dtype,
            table.concat(extents, ","), at, at + #bytes)
        at = at + #bytes
    end
    add("ids", "I32", shape, numbers(SEQUENCES * length, vocabulary, "<i4"))
    add("mask", "U8", shape, table.concat(hidden))
    add("types", "U8", shape, ("\0"):rep(SEQUENCES * length))
    add("label", "I32", { SEQUENCES }, numbers(SEQUENCES, 2, "<i4"))
    local header = "{" .. table.concat(entries, ",") .. "}"
    header = header .. (" "):rep(-#header % 8)
    return string.pack("<i8", #header) .. header .. table.concat(body)
end

local FILES = {
    { "images.idx", function() return string.pack(">I4I4I4I4", 0x803, IMAGES, 28, 28) .. bytes(IMAGES * 784) end },
    { "labels.idx", function() return string.pack(">I4I4", 0x801, IMAGES) .. numbers(IMAGES, 10, "B") end },
    { "cifar.bin", function() return records(IMAGES) end },
    { "tokens_65.bin", function() return tokens(65) end },
    { "tokens_256.bin", function() return tokens(256) end },
    { "tokens_50257.bin", function() return tokens(50257) end },
    { "sequences_30522_128.safetensors", function() return sequences(30522, 128) end },
}

local folder = assert(host.arguments[1], "expected a folder")
assert(host.folder(folder))
for _, file in ipairs(FILES) do
    if not host.exists(folder .. "/" .. file[1]) then assert(host.write(folder, file[1], file[2]())) end
end
return 0
