-- protobuf: a reader of protobuf messages, for tests of files that gagen writes.

--- The fields of a message in their order, { number, value } each: integers, texts, and numbers of 4 and 8 bytes as
--- floats.
return function(message)
    local list, at = {}, 1
    local function varint()
        local n, shift, byte = 0, 0, nil
        repeat
            byte, at = message:byte(at), at + 1
            n, shift = n | byte % 128 << shift, shift + 7
        until byte < 128
        return n
    end
    while at <= #message do
        local key, value = varint(), nil
        local kind = key % 8
        if kind == 0 then
            value = varint()
        else
            local format = kind == 2 and "c" .. varint() or assert(({ "<d", [5] = "<f" })[kind])
            value, at = string.unpack(format, message, at)
        end
        list[#list + 1] = { key // 8, value }
    end
    return list
end
