-- Texts as gzip files of one stored block, with every byte in a known place: 1 to 10 the header, 11 to 15 that of the
-- block, then the text, 4 bytes of checksum and 4 of length.
local function crc32(text)
    local crc = 0xffffffff
    for i = 1, #text do
        crc = crc ~ text:byte(i)
        for _ = 1, 8 do crc = crc >> 1 ~ (crc & 1) * 0xedb88320 end
    end
    return crc ~ 0xffffffff
end

local gzip = {}

--- The text as a gzip file.
function gzip.pack(text)
    return "\x1f\x8b\8\0\0\0\0\0\0\3\1" .. string.pack("<I2I2", #text, ~#text & 0xffff) .. text
        .. string.pack("<I4I4", crc32(text), #text)
end

--- The text with byte `at` changed by `bits`; a negative `at` counts from the end.
function gzip.flip(text, at, bits)
    local i = at < 0 and #text + at + 1 or at
    return text:sub(1, i - 1) .. string.char(text:byte(i) ~ bits) .. text:sub(i + 1)
end

--- Damages of a gzip file as a list of mutants { name, content, message }.
function gzip.mutants(packed)
    local cut, bad = "gzip data ends early: the file is cut off or empty", "damaged or no gzip data ("
    return {
        { "gzip: cut in the magic", packed:sub(1, 1), "@: " .. cut },
        { "gzip: cut in the header", packed:sub(1, 9), "@: " .. cut },
        { "gzip: cut behind the header", packed:sub(1, 10), "@: " .. cut },
        { "gzip: cut in the text", packed:sub(1, #packed // 2), "@: " .. cut },
        { "gzip: cut before the checksum", packed:sub(1, -9), "@: " .. cut },
        { "gzip: cut in the checksum", packed:sub(1, -7), "@: " .. cut },
        { "gzip: cut in the length", packed:sub(1, -2), "@: " .. cut },
        { "gzip: another checksum", gzip.flip(packed, -8, 1), "@: " .. bad .. "incorrect data check)" },
        { "gzip: another length", gzip.flip(packed, -1, 1), "@: " .. bad .. "incorrect length check)" },
        { "gzip: another byte", gzip.flip(packed, -9, 1), "@: " .. bad .. "incorrect data check)" },
        { "gzip: a method that is none", gzip.flip(packed, 3, 1), "@: " .. bad .. "unknown compression method)" },
        { "gzip: a flag that is none", gzip.flip(packed, 4, 0x80), "@: " .. bad .. "unknown header flags set)" },
        { "gzip: a block type that is none", gzip.flip(packed, 11, 6), "@: " .. bad .. "invalid block type)" },
        { "gzip: another length of the block", gzip.flip(packed, 12, 1), "@: " .. bad
            .. "invalid stored block lengths)" },
        { "gzip: bytes behind the end", packed .. "\0", "@: bytes after the end of the gzip data, expected none" },
        { "gzip: a second member cut off", packed .. packed:sub(1, 12), "@: " .. cut },
        { "gzip: a second member that is none", packed .. "\x1f\x8c\8\0", "@: " .. bad .. "incorrect header check)" },
    }
end

return gzip
