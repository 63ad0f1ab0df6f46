-- Three transformers against PyTorch: the same initial values, rows and settings must give the same
-- parameters and losses. The figures are made by tests/reference/transformers.py.
-- Invariant: no Python runs here; data are the script's formulas, settings stand in both.

local tests = {}

local FIGURES = "tests/reference/"
local BOUND = { f64 = 1e-10, f32 = 2e-5 }          -- max|a - b| / max|b| of each tensor
local LOSS_BOUND = { f64 = 1e-8, f32 = 2e-6 }      -- the log has nine digits
local ROWS, CONTEXT, VOCABULARY = 32, 8, 13

local OPTIMIZERS = {
    sgd = '{ "sgd", lr = 0.05, momentum = 0.9, weight_decay = 5e-4 }',
    adamw = '{ "adamw", lr = 3e-3, weight_decay = 0.1, eps = 1e-3 }',
}

local TOKENS = [[data { "tokens", train = "formula_tokens.bin", context = 8, shuffle = false }]]

local IMAGES = [[data { "cifar10", train = "formula_images.bin", shuffle = false,
    mean = { .4914, .4822, .4465 }, std = { .2023, .1994, .2010 } }]]

local MODELS = {}

MODELS.gpt = TOKENS .. [[

local function dense(name, out) return linear(name) { out, store = "in_out" } end
model {
    block "transformer" {
        embedding "wte" { 13, 12 }, positions "wpe" { 8 },
        times(2) "h" {
            residual { layernorm "ln_1" {}, block "attn" {
                dense("c_attn", 36), attend { heads = 3, causal = true }, dense("c_proj", 12) } },
            residual { layernorm "ln_2" {}, block "mlp" {
                dense("c_fc", 48), gelu { "tanh" }, dense("c_proj", 12) } },
        },
        layernorm "ln_f" {},
    },
    unembed { "transformer.wte" },
}
]]

MODELS.llama = TOKENS .. [[

local function dense(name, out) return linear(name) { out, bias = false } end
model(function(batch)
    local x = embedding "model.embed_tokens" { 13, 16 } (batch.input)
    x = times(2) "model.layers" (function(x)
        local h = rmsnorm "input_layernorm" {} (x)
        local q = rotary { heads = 4 } (dense("self_attn.q_proj", 16)(h))
        local k = rotary { heads = 2 } (dense("self_attn.k_proj", 8)(h))
        local v = dense("self_attn.v_proj", 8)(h)
        x = x + dense("self_attn.o_proj", 16)(attend { heads = 4, kv_heads = 2, causal = true } (q, k, v))
        h = rmsnorm "post_attention_layernorm" {} (x)
        local gate = silu {} (dense("mlp.gate_proj", 20)(h))
        return x + dense("mlp.down_proj", 16)(gate * dense("mlp.up_proj", 20)(h))
    end) (x)
    return dense("lm_head", 13)(rmsnorm "model.norm" {} (x))
end)
]]

MODELS.vit = IMAGES .. [[

model {
    reshape { 3, 4, 8, 4, 8 }, transpose { 1, 3, 5, 2, 4, 6 }, reshape { 16, 192 },
    linear "patch" { 12 }, positions "position" { 16 },
    times(2) "block" {
        residual { layernorm "norm1" {}, block "attn" {
            linear "qkv" { 36 }, attend { heads = 3 }, linear "proj" { 12 } } },
        residual { layernorm "norm2" {}, block "mlp" { linear "fc1" { 24 }, gelu {}, linear "fc2" { 12 } } },
    },
    layernorm "norm" {}, mean { axis = 2 }, linear "head" { 10 },
}
]]

local function spec(model, optimizer, accumulate, precision)
    return MODELS[model] .. ([[
batch      (4)
accumulate (%d)
loss       "cross_entropy"
optimizer  %s
precision  "%s"
train      { updates = 20, seed = 1 }
]]):format(accumulate, OPTIMIZERS[optimizer], precision)
end

local function token_file()
    local list = {}
    for k = 0, ROWS * CONTEXT do
        list[k + 1] = string.pack("<I2", (k * k * 3 + k * 7 + k // 5) % VOCABULARY)
    end
    return table.concat(list)
end

local function image_file()
    local list = {}
    for r = 0, ROWS - 1 do
        local record = { string.char(r * r % 10) }
        for k = 0, 3071 do
            record[k + 2] = string.char((r * 7919 + k * 104729 + (r * k) % 251 * 31) % 256)
        end
        list[r + 1] = table.concat(record)
    end
    return table.concat(list)
end

local function fail(...) error(string.format(...), 0) end

local function compare(t, model, optimizer, accumulate, precision)
    local programs, json = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/json.lua")
    local run = ("%s_a%d_%s"):format(optimizer, accumulate, precision)
    t.write(programs.folder() .. "/data/formula_tokens.bin", token_file())
    t.write(programs.folder() .. "/data/formula_images.bin", image_file())
    local figures, log = FIGURES .. model .. "/", t.temp() .. "/log.jsonl"
    local p = programs.build("torch_" .. model .. "_" .. run, spec(model, optimizer, accumulate, precision))
    local dump = programs.dump(p, { "--threads", 2, "--log", log, "--init", figures .. "init.safetensors" })
    local worst, where = programs.difference(dump .. "/parameters.safetensors",
        figures .. run .. ".safetensors")
    if not (worst <= BOUND[precision]) then
        fail("%s is off PyTorch's by %.3g of its largest value, at most %.0e expected", where, worst,
            BOUND[precision])
    end
    local expected, i = programs.tensors(figures .. "losses.safetensors")[run].values, 0
    for _, event in ipairs(json.lines(host.read(log))) do
        if event.event == "update" then
            i = i + 1
            if not (math.abs(event.loss - expected[i]) <= LOSS_BOUND[precision] * expected[i]) then
                fail("loss of update %d is %.9g, PyTorch has %.9g", i, event.loss, expected[i])
            end
        end
    end
    t.equal(i, #expected, "losses")
end

-- With make test any two of optimizer, micro-steps and precision meet in every way: half of all programs.
for _, model in ipairs { "gpt", "llama", "vit" } do
    for _, optimizer in ipairs { "sgd", "adamw" } do
        for _, accumulate in ipairs { 1, 4 } do
            for _, precision in ipairs { "f64", "f32" } do
                tests[#tests + 1] = { ("%s %s_a%d_%s"):format(model, optimizer, accumulate, precision), function(t)
                    if (optimizer == "sgd") ~= ((accumulate == 1) == (precision == "f64")) then t.long() end
                    compare(t, model, optimizer, accumulate, precision)
                end }
            end
        end
    end
end

return tests
