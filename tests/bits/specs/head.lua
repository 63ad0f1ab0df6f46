-- a head of its own with a bias behind a small GPT
data       { "text", train = "letters.txt", context = 8, split = { eval = 9 }, last = "pad" }
batch      (7)
accumulate (2)
model {
    embedding "wte" { 23, 16 }, positions "wpe" { 8 },
    times(2) "h" { residual { layernorm "ln" {}, linear "qkv" { 48, bias = false }, attend { heads = 2, causal = true },
                              linear "proj" { 16 } } },
    layernorm "ln_f" {}, linear "head" { 23 },
}
loss       { "cross_entropy", label_smoothing = 0.1, ignore = 5 }
optimizer  { "sgd", lr = 0.1, momentum = 0.9 }
train      { updates = 6, seed = 3 }
eval       { every = 3, metrics = { "loss", "accuracy" } }
