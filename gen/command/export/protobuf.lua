-- protobuf: the fields of messages as protobuf encodes them. A message is the concatenation of its fields:
--
--   field = key, value; key = number of the field * 8 + kind;  kind 0: a varint, 1: 8 bytes, 2: a length and bytes,
--   5: 4 bytes
local protobuf = {}

-- Seven bits a byte, the lowest first; the highest bit of a byte says that another follows.
local function varint(n)
    local bytes = {}
    while n >= 128 or n < 0 do
        bytes[#bytes + 1] = string.char(n & 127 | 128)
        n = n >> 7
    end
    bytes[#bytes + 1] = string.char(n)
    return table.concat(bytes)
end

--- A whole number; a negative one takes ten bytes.
function protobuf.integer(field, n) return varint(field << 3) .. varint(n) end

--- A double.
function protobuf.double(field, x) return varint(field << 3 | 1) .. string.pack("<d", x) end

--- A float.
function protobuf.float(field, x) return varint(field << 3 | 5) .. string.pack("<f", x) end

--- Text, bytes or a message.
function protobuf.bytes(field, text) return varint(field << 3 | 2) .. varint(#text) .. text end

return protobuf
