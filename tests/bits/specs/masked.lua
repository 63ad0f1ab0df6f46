-- attention with a mask that hides all keys of some rows, with draws, then over queries, keys and values side by side
data       { "tensors", train = "masked.safetensors", target = "class" }
batch      (3)
accumulate (2)
model      (function(batch)
    local function of(name, width) return reshape { 7, width } (linear(name) { 7 * width } (batch.input)) end
    local q, k = rotary { heads = 2 } (of("q", 8)), rotary { heads = 1 } (of("k", 4))
    local y = attend { heads = 2, kv_heads = 1, dropout = 0.2 } (q, k, of("v", 4), batch.mask)
    y = attend { heads = 3, causal = true } (linear "qkv" { 36 } (y))
    return linear "out" { 3 } (flatten {} (y))
end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.05, momentum = 0.5 }
train      { updates = 8, seed = 4 }
