-- rotary places, heads that share keys, silu times a product, no biases; tokens of a file
data       { "tokens", train = "tokens.bin", context = 6 }
batch      (4)
accumulate (2)
model(function(batch)
    local x = embedding "embed" { 11, 8 } (batch.input)
    x = times(2) "layers" (function(x)
        local h = rmsnorm "norm1" {} (x)
        local q = rotary { heads = 4 } (linear "q" { 16, bias = false } (h))
        local k = rotary { heads = 2 } (linear "k" { 8, bias = false } (h))
        local a = attend { heads = 4, kv_heads = 2, causal = true } (q, k, linear "v" { 8, bias = false } (h))
        x = x + dropout(0.25)(linear "o" { 8, bias = false } (a))
        h = rmsnorm "norm2" {} (x)
        return x + linear "down" { 8 } (silu {} (linear "gate" { 12 } (h)) * linear "up" { 12 } (h))
    end) (x)
    return linear "head" { 11 } (x)
end)
loss       { "cross_entropy", ignore = 5 }
optimizer  { "sgd", lr = 0.1, momentum = 0.9, weight_decay = 1e-3 }
train      { epochs = 3, seed = 3 }
