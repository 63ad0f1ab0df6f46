-- byte_names: the characters that represent the 256 bytes in the vocabulary's files of GPT-2: printable ones represent
-- themselves, the others are U+0100 and following, in order.

--- The characters by byte.
return function()
    local names, n = {}, 256
    for byte = 0, 255 do
        if byte >= 33 and byte <= 126 or byte >= 161 and byte ~= 173 then
            names[byte] = utf8.char(byte)
        else
            names[byte], n = utf8.char(n), n + 1
        end
    end
    return names
end
