-- safetensors: reads files of `train --dump`, and makes the bytes of new files.
local diag = require "base.diag"
local ordered = require "base.ordered"

local safetensors = {}

local FORMAT, SIZE = { F32 = "<f", F64 = "<d" }, { F32 = 4, F64 = 8 }
local LIMIT = 1099511627776

local Tensor = {}
Tensor.__index = Tensor

--- The largest |a - b| of two tensors of the same shape and type, NaN if a difference is NaN; and the largest |b|.
--- first, count: compare at most `count` elements from number `first`, counted from 0; default: all.
function Tensor:distance(other, first, count)
    first = first or 0
    local from = first * SIZE[self.dtype]
    return host.distance(self.dtype, self.text, self.at + from, other.text, other.at + from,
        math.min(count or self.n, self.n - first))
end

--- Element number i, counted from 0.
function Tensor:element(i)
    return (string.unpack(FORMAT[self.dtype], self.text, self.at + i * SIZE[self.dtype]))
end

--- All elements as bytes of F32 (default) or F16.
function Tensor:floats(dtype) return host.floats(self.text, self.at, self.n, self.dtype, dtype or "F32") end

--- The tensors of a file as an ordered map by name: { n = elements, shape, ... }, which read the file's text in place.
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
                shape = entry.shape, n = (to - from) // SIZE[entry.dtype] }, Tensor))
        end
    end
    return list
end

--- The bytes of a file with the tensors of an ordered map: { dtype, shape, bytes } by name. metadata: texts by name, or
--- nil.
function safetensors.bytes(tensors, metadata)
    local header, parts, at = { __metadata__ = metadata }, { "", "" }, 0
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
