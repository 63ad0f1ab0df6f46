-- data.lua FOLDER: writes the data files of the specs in tests/bits/specs. Each is small enough that five cycles take
-- milliseconds, and the same on every machine: decimal numbers of few digits.
local folder = assert(arg[1])
local rows = dofile "tests/numeric/rows.lua"

local function write(name, text)
    local file <close> = assert(io.open(folder .. "/" .. name, "wb"))
    assert(file:write(text))
end

-- n rows of 4 values near the class, and the class of 3
local function classes(n, target)
    local lines = {}
    for i = 1, n do
        local class, row = i % 3, {}
        for k = 1, 4 do row[k] = ("%.3f"):format(math.sin(i * k + class) + (k == class and 1 or 0)) end
        lines[i] = table.concat(row, ",") .. "," .. target(i, class)
    end
    return table.concat(lines, "\n") .. "\n"
end

-- a large value in row 8 of every 24: with initial weights above 1 the loss of that cycle overflows in f32
local function overflows()
    local lines = {}
    for i = 0, 95 do
        lines[i + 1] = ("%.3f,%s,0.5,%d"):format(math.sin(i), i % 24 == 8 and "3e38" or ("%.3f"):format(math.cos(3 * i)),
            i % 3)
    end
    return table.concat(lines, "\n") .. "\n"
end

local function letters(n)
    local bytes = {}
    for i = 1, n do bytes[i] = string.char(97 + (i * i + i // 7) % 23) end
    return table.concat(bytes)
end

local function tokens(n)
    local list = {}
    for k = 0, n do list[k + 1] = string.pack("<I2", (k * k * 3 + k * 7 + k // 5) % 11) end
    return table.concat(list)
end

-- n images of CIFAR-10's form: a byte of the class, 3 planes of 32 x 32
local function images(n)
    local list = {}
    for i = 1, n do
        local record = { string.char(i * 3 % 10) }
        for k = 0, 3071 do record[k + 2] = string.char((i * 7919 + k * 104729 + (i * k) % 251 * 31) % 256) end
        list[i] = table.concat(record)
    end
    return table.concat(list)
end

-- n rows of 4 values, and which of 7 keys are seen; two rows see none
local function masked(n)
    local input, mask, class = {}, {}, {}
    for r = 1, n do
        for k = 1, 4 do input[#input + 1] = math.floor(1000 * math.sin(3.7 * r + 1.3 * k * k)) / 1000 end
        for j = 1, 7 do mask[#mask + 1] = r % 12 ~= 5 and (r * j) % 4 ~= 1 and 1 or 0 end
        class[r] = r % 3
    end
    return rows.file { { "input", "F64", { n, 4 }, input }, { "mask", "I32", { n, 7 }, mask },
        { "class", "I32", { n }, class } }
end

local function with_ids(n)
    local input, ids, target = {}, {}, {}
    for i = 1, n do
        for j = 1, 4 do input[#input + 1] = math.floor(1000 * math.sin(i * j + i)) / 1000 end
        for j = 1, 3 do ids[#ids + 1] = (i * j + i // 3) % 4 end
        target[i] = (i - 1) % 3
    end
    return rows.file { { "input", "F64", { n, 4 }, input }, { "ids", "I32", { n, 3 }, ids },
        { "target", "I32", { n }, target } }
end

write("rows.csv", classes(90, function(_, class) return class end))
write("ignored.csv", classes(90, function(i, class) return (i > 8 and i <= 16 or i * i % 7 == 2) and 3 or class end))
write("real.csv", classes(90, function(i) return ("%.3f"):format(math.cos(i * 5) + (i % 9 == 3 and 2 or 0)) end))
write("shares.csv", classes(90, function(i) return ("%.3f"):format(0.1 + (i % 8) / 10) end))
write("overflows.csv", overflows())
write("letters.txt", letters(700))
write("tokens.bin", tokens(480))
write("images.bin", images(40))
write("masked.safetensors", masked(48))
write("ids.safetensors", with_ids(90))
