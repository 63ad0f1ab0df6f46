-- nanoGPT's train_shakespeare_char: 6 layers of 6 heads and width 384, dropout 0.2, no biases, a tied head.
local width, layers = 384, 6

data       { "text", train = "tinyshakespeare/input.txt", context = 256, split = { eval = 0.1 } }
batch      (64)
model {
    embedding "wte" { 65, width }, positions "wpe" { 256 }, dropout(0.2),
    times(layers) "h" {
        residual { layernorm "ln_1" { bias = false }, linear "c_attn" { 3 * width, bias = false },
            attend { heads = 6, causal = true, dropout = 0.2 }, linear "attn.c_proj" { width, bias = false },
            dropout(0.2) },
        residual { layernorm "ln_2" { bias = false }, linear "c_fc" { 4 * width, bias = false }, gelu {},
            linear "mlp.c_proj" { width, bias = false }, dropout(0.2) },
    },
    layernorm "ln_f" { bias = false },
    unembed { "wte" },
}
init       { { "*ln_*", value = 1 }, { "*c_proj.weight", normal = 0.02 / sqrt(2 * layers) }, { "*", normal = 0.02 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-3, betas = { 0.9, 0.99 }, weight_decay = 0.1, groups = { { rank = 1, weight_decay = 0 } } }
schedule   { "cosine", warmup = 100, min = 1e-4 }
clip       (1.0)
train      { updates = 5000 }
eval       { every = 250, batches = 200 }
