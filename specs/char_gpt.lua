-- char_gpt: a GPT that writes Shakespeare letter by letter (1.1 MB, 65 characters). New here: text as data,
-- a layer repeated with `times`, residual blocks, attention, the embedding shared with the last layer.
local width, heads, layers, context = 128, 4, 4, 64

data       { "text", train = "tinyshakespeare/input.txt", context = context, split = { eval = 1742 } } -- the last tenth
batch      (12)
model {
    block "transformer" {
        embedding "wte" { 65, width }, positions "wpe" { context },
        times(layers) "h" {
            residual { layernorm "ln_1" {}, block "attn" {
                linear "c_attn" { 3 * width }, attend { heads = heads, causal = true },
                linear "c_proj" { width } } },
            residual { layernorm "ln_2" {}, block "mlp" {
                linear "c_fc" { 4 * width }, gelu { "tanh" }, linear "c_proj" { width } } },
        },
        layernorm "ln_f" {},
    },
    unembed { "transformer.wte" },
}
init       { { "*ln_*.weight", value = 1 }, { "*.c_proj.weight", normal = 0.02 / sqrt(2 * layers) }, { "*.weight", normal = 0.02 }, { "*.bias", value = 0 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 2e-3, betas = { 0.9, 0.99 }, weight_decay = 0.1, groups = { { rank = 1, weight_decay = 0 } } }
schedule   { "cosine", warmup = 100, min = 2e-4 }
clip       (1.0)
train      { updates = 2000, seed = 1 }
eval       { every = 500 }                           -- the whole validation text
checkpoint { every = 500 }
log        { every = 20 }
