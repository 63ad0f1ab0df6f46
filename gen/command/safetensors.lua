-- safetensors: reads the files that `train --dump` writes, and makes the bytes of new ones.
local diag = require "base.diag"
local ordered = require "base.ordered"

local safetensors = {}

local FORMAT, SIZE = { F32 = "<f", F64 = "<d" }, { F32 = 4, F64 = 8 }
local LIMIT = 1099511627776

local Tensor = {}
Tensor.__index = Tensor

--- The bytes of at most `count` elements from number `first` on, from 0; "" behind the last.
function Tensor:bytes(first, count)
    local size = SIZE[self.dtype]
    local last = math.min(first + count, self.n)
    return self.text:sub(self.at + first * size, self.at + last * size - 1)
end

--- Calls f(element, number from 0) for each element of self:bytes(first, count).
function Tensor:each(first, count, f)
    local format, at = FORMAT[self.dtype], self.at + first * SIZE[self.dtype]
    for i = first, math.min(first + count, self.n) - 1 do
        local v
        v, at = string.unpack(format, self.text, at)
        f(v, i)
    end
end

--- Element number i, from 0.
function Tensor:element(i)
    return (string.unpack(FORMAT[self.dtype], self.text, self.at + i * SIZE[self.dtype]))
end

--- The tensors of a file in an ordered map by name: { n = elements, ... }, looked at where they lie.
function safetensors.open(path)
    local text, message = host.read(path, LIMIT)
    if not text then diag.fail(path, message, { kind = "environment" }) end
    local length = #text >= 8 and string.unpack("<i8", text) or 0
    local header = length > 0 and length <= #text - 8 and host.parse_json(text:sub(9, 8 + length))
    if not header then diag.fail(path, "is no safetensors file", { kind = "bug" }) end
    local list = ordered.map()
    for name, entry in ordered.each(header) do
        if name ~= "__metadata__" then
            local from, to = entry.data_offsets[1], entry.data_offsets[2]
            list:set(name, setmetatable({ text = text, at = 9 + length + from, dtype = entry.dtype,
                n = (to - from) // SIZE[entry.dtype] }, Tensor))
        end
    end
    return list
end

--- The bytes of a file with the tensors of an ordered map: { dtype, shape, bytes } by name.
function safetensors.bytes(tensors)
    local header, parts, at = {}, { "", "" }, 0
    for name, tensor in tensors:each() do
        header[name] = { dtype = tensor.dtype, shape = tensor.shape, data_offsets = { at, at + #tensor.bytes } }
        parts[#parts + 1], at = tensor.bytes, at + #tensor.bytes
    end
    local text = host.json(header)
    text = text .. (" "):rep(-#text % 8)
    parts[1], parts[2] = string.pack("<i8", #text), text
    return table.concat(parts)
end

return safetensors
