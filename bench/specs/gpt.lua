-- gpt: a GPT on tokens; `make bench` writes the line of its sizes anew for each configuration
local layers, heads, width, vocab, context = 6, 6, 384, 256, 256
data       { "tokens", train = "tokens_" .. vocab .. ".bin", context = context }
batch      (8)
accumulate (4)
model {
    block "transformer" {
        embedding "wte" { vocab, width }, positions "wpe" { context },
        times(layers) "h" {
            residual { layernorm "ln_1" {}, block "attn" {
                linear "c_attn" { 3 * width }, attend { heads = heads, causal = true }, linear "c_proj" { width } } },
            residual { layernorm "ln_2" {}, block "mlp" {
                linear "c_fc" { 4 * width }, gelu { "tanh" }, linear "c_proj" { width } } },
        },
        layernorm "ln_f" {},
    },
    unembed { "transformer.wte" },
}
init       { { "*ln_*.weight", value = 1 }, { "*.weight", normal = 0.02 }, { "*.bias", value = 0 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 3e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1 }
train      { updates = 1000000 }
log        { every = 1 }
