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

-- An input as a linear layer of the whole row, or of each position from four numbers: that has few weights.
local WIDE = "reshape { T, width } (linear(name) { T * width } (batch.input))"
local NARROW = 'linear(name) { width, bias = false } (reshape { T, 4 } (linear(name .. "_4") { T * 4 } (batch.input)))'

--- A spec whose logits are a sum over `outputs`, tensors of the rows of the batch in the words of specs; of(name,
--- positions, width) in them is an input. file: the data's name; rest: precision, updates, target; narrow: whether
--- inputs have few weights.
function attended.spec(file, outputs, rest, narrow)
    return ([[
data      { "tensors", train = "%s", target = "class" }
batch     (%d)
model     (function(batch)
    local function of(name, T, width) return %s end
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
]]):format(file, attended.ROWS, narrow and NARROW or WIDE, table.concat(outputs, ",\n        "), attended.CLASSES, rest)
end

-- Row 1 sees all keys, row 2 some, row 3 none.
local function visible(r, j) return r == 1 or r == 2 and j * j % 5 < 3 end

-- The attention of case i, of linear layers q1, k1, v1, or qkv1.
local function attention(i, o)
    local S, kv_heads = o.S or o.T, o.kv_heads or o.heads
    local width, kv_width = o.heads * o.d, kv_heads * o.d
    local options = ("heads = %d, kv_heads = %d, causal = %s, dropout = %g"):format(o.heads, kv_heads,
        tostring(o.causal or false), o.dropout or 0)
    if o.packed then
        return ('attend { %s } (of("qkv%d", %d, %d))'):format(options, i, o.T, width + 2 * kv_width)
    end
    return ('attend { %s } (of("q%d", %d, %d), of("k%d", %d, %d), of("v%d", %d, %d)%s)'):format(options, i, o.T, width,
        i, S, kv_width, i, S, kv_width, o.mask and ", batch.mask" .. S or "")
end

--- Writes the spec `name` of a model whose logits are a sum over the cases: { T =, S =, heads =, kv_heads =, d =, packed =,
--- causal =, mask =, dropout = }, and its data; returns its path and text. narrow: as in attended.spec.
function attended.write(t, programs, name, cases, precision, target, narrow)
    local outputs, masks = {}, {}
    for i, case in ipairs(cases) do
        outputs[i] = attention(i, case)
        if case.mask then masks[#masks + 1] = { keys = case.S or case.T, visible = visible } end
    end
    local file, path = name .. ".safetensors", ("%s/%s.lua"):format(programs.folder(), name)
    t.write(programs.folder() .. "/data/" .. file, attended.data(t, "F32", masks))
    local text = attended.spec(file, outputs, ('precision "%s"\ntrain     { updates = 2, seed = 3 }\ntarget    %s')
        :format(precision, target), narrow)
    t.write(path, text)
    return path, text
end

--- Builds that model. options: of gagen.
function attended.build(t, programs, name, cases, precision, target, options, narrow)
    local _, text = attended.write(t, programs, name, cases, precision, target, narrow)
    return programs.build(("%s_%s_%s"):format(name, precision, target:gsub("%W", "")), text,
        options and { options = options })
end

return attended
