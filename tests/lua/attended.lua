-- attended: models of attention over linear layers of one input, for tests of its kernels.
local attended = {}

attended.ROWS, attended.CLASSES = 3, 3

--- A data file of rows with numbers in -1 .. 1 of `dtype`, a class, and for each of `masks` { keys, visible(row, key) } a
--- mask of keys.
function attended.data(t, dtype, masks)
    local input, class = {}, {}
    for r = 1, attended.ROWS do
        for k = 1, 4 do input[#input + 1] = math.sin(3.7 * r + 1.3 * k * k) end
        class[r] = r % attended.CLASSES
    end
    local list = { { "input", dtype, { attended.ROWS, 4 }, input }, { "class", "I32", { attended.ROWS }, class } }
    for _, case in ipairs(masks) do
        local mask = {}
        for r = 1, attended.ROWS do
            for j = 1, case.keys do mask[#mask + 1] = case.visible(r, j) and 1 or 0 end
        end
        list[#list + 1] = { "mask" .. case.keys, "I32", { attended.ROWS, case.keys }, mask }
    end
    return t.load("tests/numeric/rows.lua").file(list)
end

--- A spec whose logits are a sum over `outputs`, tensors of the rows of the batch in the words of specs; of(name,
--- positions, width) in them is an input. file: the data's name; rest: precision, updates, target.
function attended.spec(file, outputs, rest)
    return ([[
data      { "tensors", train = "%s", target = "class" }
batch     (%d)
model     (function(batch)
    local function of(name, T, width) return reshape { T, width } (linear(name) { T * width } (batch.input)) end
    local sum
    for i, y in ipairs { %s } do
        local part = linear("out" .. i) { %d } (flatten {} (y))
        sum = sum and sum + part or part
    end
    return sum * 0.02
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
init      { { "*", uniform = 0.9 } }
%s
]]):format(file, attended.ROWS, table.concat(outputs, ",\n        "), attended.CLASSES, rest)
end

return attended
