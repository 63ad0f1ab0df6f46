-- Models, data and optimizers for programs with ranks, and specs made of them. A case has { model, optimizer, tail,
-- weight, clip, precision }, and may have { target, memory, eval, split (of tokens) }. Rows of an update are the same for
-- any number of ranks, since each cycle takes RANKS * A micro-batches in their order.
local ranked = {}

local OPTIMIZERS = {
    adamw = '{ "adamw", lr = 1e-2, weight_decay = 0.05 }',
    sgd = '{ "sgd", lr = 0.1, momentum = 0.9, groups = { { "*.bias", lr_scale = 2 } } }',
    lamb = '{ "lamb", lr = 1e-2 }', lars = '{ "lars", lr = 0.1, momentum = 0.9 }',
    adafactor = '{ "adafactor", lr = 1e-2 }', muon = '{ "muon", lr = 1e-2, rest = { "adamw", lr = 1e-3 } }',
    ema = '{ "adamw", lr = 1e-2, ema = 0.9 }',
}

-- The first of several layers, or one alone.
local FROZEN = { mlp = "fc1.bias", convnet = "conv1.*", batchnorm = "h.1.*", gpt = "h.1.*", llama = "h.0.*",
    bert = "h.0.*", resnet = "bn1.*" }

-- ROWS: of a micro-step. The bias of a key has no gradient but rounding, of which a rule like Adam's makes steps: there is none.
ranked.MODELS = {
    mlp = { rows = "digits", '{ linear "fc1" { 21 }, relu {}, linear "fc2" { 10 } }' },
    convnet = { rows = "digits", [[{
    reshape { 1, 8, 8 }, conv2d "conv1" { 5, 3, padding = 1 }, relu {}, conv2d "conv2" { 7, 3, stride = 2 }, relu {},
    flatten {}, linear "fc1" { 10 },
}]] },
    batchnorm = { rows = "digits", [[{
    reshape { 1, 8, 8 }, conv2d "conv1" { 5, 3, bias = false },
    batchnorm "bn1" { rows = ROWS, running = "cycle" }, relu {},
    times(3) "h" { conv2d "conv" { 5, 3, padding = 1, bias = false },
                   batchnorm "bn" { rows = ROWS, running = "cycle" }, relu {} },
    flatten {}, linear "fc1" { 10 },
}]] },
    gpt = { rows = "tokens", [[{
    embedding "wte" { 11, 12 }, positions "wpe" { 6 },
    times(5) "h" {
        residual { layernorm "ln_1" {}, linear "c_attn" { 36, bias = false }, attend { heads = 2, causal = true },
                   linear "c_proj" { 12 } },
        residual { layernorm "ln_2" {}, linear "c_fc" { 20 }, gelu { "tanh" }, linear "proj" { 12 } },
    },
    layernorm "ln_f" {}, unembed { "wte" },
}]] },
    bert = { rows = "tokens", [[(function(batch)
    local shared = linear "shared" { 12 }
    local x = embedding "word" { 11, 12, padding = 3 } (batch.input)
    x = layernorm "norm" {} (positions "place" { 6 } (x))
    x = times(2) "h" (function(x)
        local a = attend { heads = 2 } (linear "q" { 12 } (x), linear "k" { 12, bias = false } (x), linear "v" { 12 } (x))
        x = layernorm "ln_1" {} (x + shared (a))
        return layernorm "ln_2" {} (x + linear "down" { 12 } (gelu {} (linear "up" { 20 } (x))))
    end) (x)
    x = tanh {} (shared (x))
    return linear "classes" { 11 } (x)
end)]] },
    resnet = { rows = "digits", [[{
    reshape { 1, 8, 8 }, conv2d "conv1" { 5, 3, padding = 1, bias = false },
    batchnorm "bn1" { rows = ROWS, running = "micro" }, relu {},
    residual { conv2d "a1" { 5, 3, padding = 1, bias = false }, batchnorm "b1" { rows = ROWS, running = "cycle" }, relu {},
               conv2d "a2" { 5, 3, padding = 1, bias = false } }, relu {},
    residual { conv2d "a3" { 7, 3, stride = 2, padding = 1, bias = false }, relu {},
               conv2d "a4" { 7, 3, padding = 1, bias = false },
               shortcut = { conv2d "down" { 7, 1, stride = 2, bias = false } } }, relu {},
    avgpool2d { "global" }, flatten {}, linear "fc" { 10 },
}]] },
    llama = { rows = "tokens", [[(function(batch)
    local x = embedding "embed" { 11, 8 } (batch.input)
    x = times(3) "h" (function(x)
        local h = rmsnorm "norm1" {} (x)
        local q = rotary { heads = 2 } (linear "q" { 8, bias = false } (h))
        local k = rotary { heads = 1 } (linear "k" { 4, bias = false } (h))
        local a = attend { heads = 2, kv_heads = 1, causal = true } (q, k, linear "v" { 4, bias = false } (h))
        x = x + linear "o" { 8, bias = false } (a)
        h = rmsnorm "norm2" {} (x)
        return x + linear "down" { 8 } (silu {} (linear "gate" { 12 } (h)) * linear "up" { 12 } (h))
    end) (x)
    return linear "head" { 11 } (rmsnorm "norm" {} (x))
end)]] },
}

--- A spec without its word parallel, for errors that are planted in gathers: a head of its own, whose weight the
--- evaluation alone reads behind the forward pass, and 5 layers, which take turns in two windows.
ranked.GATHERED = [[
data       { "tokens", train = "parallel.bin", context = 6, split = { eval = 24 } }
batch      (3)
accumulate (2)
model      { embedding "wte" { 11, 12 },
             times(5) "h" { residual { layernorm "ln" {}, linear "fc" { 20 }, gelu { "tanh" }, linear "proj" { 12 } } },
             layernorm "ln_f" {}, linear "head" { 11 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
memory     { logits = "chunked", logits_rows = 8 }
train      { updates = 3, seed = 7 }
eval       { every = 1 }
]]

--- A spec in f16 of 4 cycles of 2 ranks, with %s for its word parallel; the gradient of the second cycle overflows.
ranked.OVERFLOWING = [[
data       { "csv", train = "zero3_overflow.csv", target = "last", shuffle = false }
batch      (4)
accumulate (2)
model      { linear "fc1" { 16 }, relu {}, linear "fc2" { 4 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 0.05, ema = 0.9 }
schedule   { "cosine", warmup = 2, total = 20 }
precision  "f16"
train      { updates = 20 }
%s
]]

--- Writes its rows; one of the second cycle is too large for any scale.
function ranked.write_overflowing(t, programs)
    local rows = {}
    for i = 0, 4 * 16 - 1 do
        rows[i + 1] = ("%.3f,%s,0.5,%d"):format(math.sin(i), i == 16 + 9 and "3e38" or ("%.3f"):format(math.cos(3 * i)),
            i % 3)
    end
    t.write(programs.folder() .. "/data/zero3_overflow.csv", table.concat(rows, "\n") .. "\n")
end

local ROWS = {
    digits = 'data { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, '
        .. 'split = { fold = 2, of = 5 } }',
    tokens = 'data { "tokens", train = "parallel.bin", context = 6, SPLIT }',
}

--- Writes the tokens that models of rows "tokens" read: 60 micro-batches from 0 to 10, as llm.c writes them.
function ranked.write_tokens(t, programs)
    local path = programs.folder() .. "/data/parallel.bin"
    if host.exists(path) then return end
    local list, state = {}, 5
    for i = 1, 6 * 480 + 1 do
        state = (state * 75 + 74) % 65537
        list[i] = string.pack("<I2", state % 11)
    end
    t.write(path, string.pack("<i4i4i4", 20240520, 1, #list) .. ("\0"):rep(1012) .. table.concat(list))
end

--- The spec of a case for `ranks` processes, of which each has `rows` rows per micro-step.
function ranked.spec(case, rows, a, parallel)
    local target = case.target and ('target "%s"\n'):format(case.target) or ""
    local optimizer = OPTIMIZERS[case.optimizer]
        or ('{ "adamw", lr = 1e-2, groups = { { %q, frozen = true } } }'):format(FROZEN[case.model])
    return table.concat({ (ROWS[ranked.MODELS[case.model].rows]:gsub(", SPLIT", case.split and ", " .. case.split or "")),
        ("batch (%d)\naccumulate { %d, tail = %q }"):format(rows, a, case.tail),
        "model " .. ranked.MODELS[case.model][1]:gsub("ROWS", rows), ('loss { "cross_entropy", weight = %q }'):format(case.weight),
        "optimizer " .. optimizer, case.clip, ("precision %q"):format(case.precision),
        case.precision == "f16" and "scaler { initial_scale = 1024 }" or "",
        "train { updates = 50, seed = 7 }", case.memory or "", case.eval or "", 'checkpoint { every = "end" }', parallel, target }, "\n")
end

return ranked
