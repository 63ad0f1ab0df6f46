-- tokens: a layer of a GPT for `gagen doctor --calibrate`; its large table of embeddings makes an update that no cache
-- holds
local context, width = 256, 384
data       { "tokens", train = "tokens.bin", context = context }
batch      (4)
accumulate (2)
model {
    embedding "wte" { 50257, width }, positions "wpe" { context },
    residual { layernorm "ln_1" {}, block "attn" {
        linear "c_attn" { 3 * width }, attend { heads = 6, causal = true }, linear "c_proj" { width } } },
    residual { layernorm "ln_2" {}, block "mlp" {
        linear "c_fc" { 4 * width }, gelu { "tanh" }, linear "c_proj" { width } } },
    linear "narrow" { 32 }, gelu { "tanh" }, layernorm "ln_f" {}, linear "head" { 512 },
}
init       { { "*ln_*.weight", value = 1 }, { "*.weight", normal = 0.02 }, { "*", value = 0 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-4 }
train      { updates = 1000 }
log        { every = 1000 }
