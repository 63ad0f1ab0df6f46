-- The result of a cycle depends on its rows, not on its micro-steps: every count, tail, table and weight, for four
-- kinds of models, with dropout and shuffling. In f64, so that only the order of sums differs.
-- 80 rows of each data set are trained on; batch 8 gives the ten micro-batches of an epoch.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local BOUND = 1e-12
local ROWS, CONTEXT, IGNORED = 80, 6, 5

-- Rows 9 to 16 (the second micro-batch of 8) are ignored as a whole, others here and there.
local function label(i)
    if i >= 9 and i <= 16 or i * i % 7 == 2 then return IGNORED end
    return i * 3 % 5
end

local function csv()
    local list = {}
    for i = 1, ROWS do
        local row = {}
        for k = 1, 5 do row[k] = ("%.3f"):format(math.sin(i * k) + (k - 1 == label(i) and 1 or 0)) end
        list[i] = table.concat(row, ",") .. "," .. label(i)
    end
    return table.concat(list, "\n") .. "\n"
end

local function tokens()
    local list = {}
    for k = 0, ROWS * CONTEXT do
        local row = (k - 1) // CONTEXT + 1      -- the row whose target the token is
        local id = row >= 9 and row <= 16 and IGNORED or (k * k * 3 + k * 7 + k // 5) % 11
        list[k + 1] = string.pack("<I2", id)
    end
    return table.concat(list)
end

local function images()
    local list = {}
    for i = 1, ROWS do
        local record = { string.char(label(i)) }
        for k = 0, 3071 do record[k + 2] = string.char((i * 7919 + k * 104729 + (i * k) % 251 * 31) % 256) end
        list[i] = table.concat(record)
    end
    return table.concat(list)
end

local DATA = {
    mlp = '"csv", train = "weighed.csv", target = "last"',
    gpt = '"tokens", train = "weighed_tokens.bin", context = 6',
    vit = '"cifar10", train = "weighed_images.bin", mean = { .5, .5, .5 }, std = { .2, .2, .2 }',
}
DATA.llama = DATA.gpt
local AUGMENTED = { vit = ", crop = { 32, padding = 4 }, flip = true" }

local MODELS = {
    mlp = '{ linear "fc1" { 12 }, relu {}, dropout(DROP), linear "fc2" { 6 } }',
    gpt = [[{
    block "t" {
        embedding "wte" { 11, 8 }, positions "wpe" { 6 }, dropout(DROP),
        times(2) "h" {
            residual { layernorm "ln_1" {}, linear "c_attn" { 24 },
                attend { heads = 2, causal = true, dropout = DROP }, linear "c_proj" { 8 }, dropout(DROP) },
            residual { layernorm "ln_2" {}, linear "c_fc" { 16 }, gelu { "tanh" }, linear "proj" { 8 } },
        },
    },
    unembed { "t.wte" },
}]],
    llama = [[(function(batch)
    local x = embedding "embed" { 11, 8 } (batch.input)
    x = times(2) "layers" (function(x)
        local h = rmsnorm "norm1" {} (x)
        local q = rotary { heads = 2 } (linear "q" { 8, bias = false } (h))
        local k = rotary { heads = 1 } (linear "k" { 4, bias = false } (h))
        local a = attend { heads = 2, kv_heads = 1, causal = true } (q, k, linear "v" { 4, bias = false } (h))
        x = x + dropout(DROP)(linear "o" { 8, bias = false } (a))
        h = rmsnorm "norm2" {} (x)
        return x + linear "down" { 8 } (silu {} (linear "gate" { 12 } (h)) * linear "up" { 12 } (h))
    end) (x)
    return linear "head" { 11 } (x)
end)]],
    vit = [[{
    reshape { 3, 4, 8, 4, 8 }, transpose { 1, 3, 5, 2, 4, 6 }, reshape { 16, 192 },
    linear "patch" { 8 }, positions "position" { 16 },
    times(2) "h" {
        residual { layernorm "norm1" {}, linear "qkv" { 24 }, attend { heads = 2 }, linear "proj" { 8 } },
        residual { layernorm "norm2" {}, linear "fc1" { 12 }, gelu {}, dropout(DROP), linear "fc2" { 8 } },
    },
    layernorm "norm" {}, mean { axis = 2 }, linear "head" { 6 },
}]],
}

-- how: rows, accumulate (text), and weight, shuffle, last, optimizer, drop, epochs
local function spec(model, how)
    return ([[
data       { %s%s, shuffle = %s, last = "%s" }
batch      (%d)
accumulate %s
model      %s
loss       { "cross_entropy", ignore = %d, weight = "%s" }
optimizer  %s
precision  "f64"
train      { epochs = %g, seed = 3 }
]]):format(DATA[model], how.drop and "" or AUGMENTED[model] or "",
        how.shuffle == false and "false" or "true", how.last or "drop", how.rows,
        how.accumulate, MODELS[model]:gsub("DROP", how.drop or "0.25"), IGNORED, how.weight or "token",
        how.optimizer or '{ "sgd", lr = 0.1, momentum = 0.9, weight_decay = 1e-3 }', how.epochs or 3)
end

local function trained(t, model, how, options)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = programs.folder() .. "/data/"
    t.write(folder .. "weighed.csv", csv())
    t.write(folder .. "weighed_tokens.bin", tokens())
    t.write(folder .. "weighed_images.bin", images())
    local text = spec(model, how)
    local p = programs.build("accumulate_" .. model .. "_" .. host.sha256(text):sub(1, 12), text)
    return programs.dump(p, options or {}), programs, p
end

-- Both divisions into micro-steps must give the same parameters and state.
local function same(t, model, one, other)
    local a, programs = trained(t, model, one)
    programs.close(a, trained(t, model, other), BOUND)
end

local NAMES = { "mlp", "gpt", "llama", "vit" }

for _, model in ipairs(NAMES) do
    add(model .. ": 1 to 5 micro-steps for the same 60 rows", function(t)
        local one, programs = trained(t, model, { rows = 60, accumulate = "(1)" })
        for a = 2, 5 do
            local cut = trained(t, model, { rows = 60 // a, accumulate = ("(%d)"):format(a) })
            programs.close(cut, one, BOUND)
        end
    end)

    add(model .. ": tail drop leaves two of ten micro-batches out", function(t)
        same(t, model, { rows = 8, accumulate = "(4)" }, { rows = 32, accumulate = "(1)" })
    end)

    add(model .. ": tail flush ends the epoch with a cycle of two", function(t)
        same(t, model, { rows = 8, accumulate = '{ 4, tail = "flush" }' },
            { rows = 32, accumulate = "(1)", last = "pad" })
    end)

    add(model .. ": a padded micro-batch counts its rows only", function(t)
        same(t, model, { rows = 12, accumulate = '{ 2, tail = "flush" }', last = "pad" },
            { rows = 24, accumulate = "(1)", last = "pad" })
    end)

    add(model .. ": tail carry lets a cycle span two epochs", function(t)
        same(t, model, { rows = 8, accumulate = '{ 4, tail = "carry" }' },
            { rows = 4, accumulate = '{ 8, tail = "carry" }' })
        same(t, model, { rows = 8, accumulate = '{ 4, tail = "carry" }' },
            { rows = 16, accumulate = '{ 2, tail = "carry" }' })
    end)

    add(model .. ": a table of counts by cycle", function(t)
        same(t, model, { rows = 8, accumulate = "{ 2, later = { [2] = 4, [5] = 2 } }" },
            { rows = 16, accumulate = "{ 1, later = { [2] = 2, [5] = 1 } }" })
    end)

    for _, weight in ipairs { "token", "sample", "sum" } do
        add(("%s: weight %s over unequal masks and an empty micro-step"):format(model, weight), function(t)
            local sgd = '{ "sgd", lr = 1e-3, momentum = 0.9 }'
            for _, shuffle in ipairs { true, false } do
                same(t, model,
                    { rows = 8, accumulate = "(5)", weight = weight, shuffle = shuffle, optimizer = sgd },
                    { rows = 40, accumulate = "(1)", weight = weight, shuffle = shuffle, optimizer = sgd })
            end
        end)
    end

    -- With momentum 1 and rate 0 the state is the sum of the updates' gradients. A micro-step of weight 0 is
    -- skipped as an update of its own, and adds nothing to an update of several.
    add(model .. ": weight micro is the mean of the micro-steps' means", function(t)
        local function sums(accumulate, cycles)
            local dump, programs = trained(t, model, { rows = 8, accumulate = accumulate, weight = "micro",
                shuffle = false, drop = "0", optimizer = '{ "sgd", lr = 0, momentum = 1 }' },
                { "--cycles", cycles })
            return programs.tensors(dump .. "/state.safetensors")
        end
        local apart, together = sums("(1)", 4), sums("(4)", 1)
        local counted, compared = 3, 0          -- of four micro-steps one is ignored
        for name, tensor in next, together do
            local gap, size = 0, 0
            for i, x in ipairs(tensor.values) do
                local expected = apart[name].values[i] / counted
                gap, size = math.max(gap, math.abs(x - expected)), math.max(size, math.abs(expected))
            end
            if not (gap <= BOUND * size) then
                error(("%s differs by %.3g of %.3g"):format(name, gap, size))
            end
            compared = compared + 1
        end
        assert(compared > 0)
    end)
end

-- Missing rows must not contribute, although the model computes NaN from rows of zeros. 80 rows: with 12 per
-- micro-step the last of seven has 8; with 80 one micro-step has all.
add("missing rows have weight 0, also in a model that gives NaN for zeros", function(t)
    local programs, environment = dofile("tests/lua/devices.lua").open(t)
    local lines = {}
    for i = 1, ROWS do lines[i] = ("%.3f,%.3f,%d"):format(1.5 + math.sin(i), 1.5 + math.cos(3 * i), label(i)) end
    t.write(programs.folder() .. "/data/positive.csv", table.concat(lines, "\n") .. "\n")
    local function of(name, rows, accumulate, more)
        return programs.build("accumulate_inverse_" .. name, ([[
data       { "csv", train = "positive.csv", eval = "positive.csv", target = "last", last = "pad"%s }
batch      (%d)
accumulate { %d, tail = "flush" }
model(function(batch) return linear "fc" { 6 } (1 / batch.input) end)
loss       { "cross_entropy", ignore = %d }
optimizer  { "sgd", lr = 0.1, momentum = 0.9 }
precision  "f64"
train      { updates = 3, seed = 3 }
%s]]):format(name == "stream" and ", stream = true" or "", rows, accumulate, IGNORED, more or ""))
    end
    local one = programs.dump(of("one", 80, 1), {})
    programs.close(programs.dump(of("cut", 12, 7), {}), one, BOUND)
    programs.close(programs.dump(of("stream", 12, 7), {}), programs.dump(of("stream_one", 80, 1), {}), BOUND)
    programs.close(programs.dump(of("device", 12, 7, 'target "cuda"\n'), { env = environment() }), one, 1e-10)
end)

return tests
