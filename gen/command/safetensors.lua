-- safetensors: reads the files that `train --dump` writes, and makes the bytes of new ones.
local diag = require "base.diag"
local ordered = require "base.ordered"

local safetensors = {}

local FORMAT, SIZE = { F32 = "<f", F64 = "<d" }, { F32 = 4, F64 = 8 }
local LIMIT = 1099511627776

--- The tensors of a file in an ordered map from name to an array of numbers.
function safetensors.read(path)
    local text, message = host.read(path, LIMIT)
    if not text then diag.fail(path, message, { kind = "environment" }) end
    local length = #text >= 8 and string.unpack("<i8", text) or 0
    local header = length > 0 and length <= #text - 8 and host.parse_json(text:sub(9, 8 + length))
    if not header then diag.fail(path, "is no safetensors file", { kind = "bug" }) end
    local list = ordered.map()
    for name, entry in ordered.each(header) do
        if name ~= "__metadata__" then
            local format, at, values = FORMAT[entry.dtype], 9 + length + entry.data_offsets[1], {}
            for i = 1, (entry.data_offsets[2] - entry.data_offsets[1]) // SIZE[entry.dtype] do
                values[i], at = string.unpack(format, text, at)
            end
            list:set(name, values)
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
