-- gguf_file: the bytes of a GGUF file, version 3: facts by name, and tensors at multiples of 32 bytes.
--
--   "GGUF", version, number of tensors, number of facts; each fact: name, kind, value; each tensor: name, axes, extents
--   (the last axis first), type, place; the tensors' bytes
local ordered = require "base.ordered"

local file = {}

local VERSION, ALIGNMENT = 3, 32

-- Numbers of the kinds of facts and of the types of tensors.
local KINDS = { u32 = 4, i32 = 5, f32 = 6, bool = 7, text = 8 }
local ARRAY, TYPES = 9, { F32 = 0, F16 = 1 }

local function text_of(s) return string.pack("<s8", s) end

local ENCODE = {
    u32 = function(n) return string.pack("<I4", n) end, i32 = function(n) return string.pack("<i4", n) end,
    f32 = function(x) return string.pack("<f", x) end, text = text_of,
    bool = function(b) return b and "\1" or "\0" end,
}

local function fact(name, kind, value)
    if type(value) ~= "table" then return text_of(name) .. string.pack("<I4", KINDS[kind]) .. ENCODE[kind](value) end
    return text_of(name) .. string.pack("<I4I4I8", ARRAY, KINDS[kind], #value)
        .. table.concat(ordered.collect(value, ENCODE[kind]))
end

local function padding(size) return ("\0"):rep(-size % ALIGNMENT) end

--- The bytes of a file. facts: array of { name, kind, value }, a value that is a table being an array; tensors: ordered
--- map from name to { dtype, shape, bytes }.
function file.bytes(facts, tensors)
    local head, data, at = { "GGUF", string.pack("<I4I8I8", VERSION, tensors:size(), #facts) }, {}, 0
    for _, one in ipairs(facts) do head[#head + 1] = fact(table.unpack(one)) end
    for name, tensor in tensors:each() do
        head[#head + 1] = text_of(name) .. string.pack("<I4", #tensor.shape)
        for _, extent in ipairs(ordered.reversed(tensor.shape)) do head[#head + 1] = string.pack("<I8", extent) end
        head[#head + 1] = string.pack("<I4I8", TYPES[tensor.dtype], at)
        local behind = padding(#tensor.bytes)
        data[#data + 1], data[#data + 2] = tensor.bytes, behind
        at = at + #tensor.bytes + #behind
    end
    local text = table.concat(head)
    return text .. padding(#text) .. table.concat(data)
end

return file
