-- rows: makes .safetensors files of data and of initial values.
local TYPES = { F64 = "<d", F32 = "<f", I32 = "<i4" }
local rows = {}

--- The bytes of a file of these tensors: { name, dtype, shape, values }.
function rows.file(tensors)
    local entries, body, at = {}, {}, 0
    for k, tensor in ipairs(tensors) do
        local name, dtype, shape, values = table.unpack(tensor)
        local bytes = {}
        for i, value in ipairs(values) do bytes[i] = string.pack(TYPES[dtype], value) end
        body[k] = table.concat(bytes)
        entries[k] = ('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(name, dtype,
            table.concat(shape, ","), at, at + #body[k])
        at = at + #body[k]
    end
    local header = "{" .. table.concat(entries, ",") .. "}"
    header = header .. (" "):rep(-#header % 8)
    return string.pack("<i8", #header) .. header .. table.concat(body)
end

--- A data file of n rows: `input`, `width` reals, `ids`, three whole numbers 0..3, and `target`, the
-- classes 0, 1, 2 in turn.
function rows.sample(n, width)
    local input, ids, target = {}, {}, {}
    for i = 1, n do
        for j = 1, width do input[#input + 1] = math.sin(i * j + i) end
        for j = 1, 3 do ids[#ids + 1] = (i * j + i // 3) % 4 end
        target[i] = (i - 1) % 3
    end
    return rows.file { { "input", "F64", { n, width }, input }, { "ids", "I32", { n, 3 }, ids },
        { "target", "I32", { n }, target } }
end

return rows
