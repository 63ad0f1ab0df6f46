-- a tied table, attention that looks back, places, a norm; the last cycle of an epoch ends early
data       { "text", train = "letters.txt", context = 8, split = { eval = 9 }, last = "pad" }
batch      (3)
accumulate { 2, tail = "flush" }
model {
    block "t" {
        embedding "wte" { 23, 16 }, positions "wpe" { 8 }, dropout(0.1),
        times(2) "h" {
            residual { layernorm "ln_1" {}, linear "qkv" { 48 }, attend { heads = 2, causal = true, dropout = 0.1 },
                       linear "proj" { 16 } },
            residual { layernorm "ln_2" {}, linear "fc" { 40, store = "in_out" }, gelu { "tanh" }, linear "out" { 16 } },
        },
        layernorm "ln_f" {},
    },
    unembed { "t.wte" },
}
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, groups = { { rank = 1, weight_decay = 0 } } }
clip       (1.0)
train      { updates = 8, seed = 3 }
eval       { every = 5, batches = 2, metrics = { "loss", "accuracy" } }
