-- digits_ops: the ops that the shipped specs do not have, for tests/reference/exports/exports.py.
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch      (8)
model(function(batch)
    local x = reshape { 1, 8, 8 } (batch.input)
    x = conv2d "c" { 4, { 3, 2 }, stride = { 1, 2 }, padding = 1 } (x)
    x = conv2d "d" { 8, 3, padding = 2, dilation = 2, groups = 2, bias = false } (x)
    x = pad { { 1, 0 }, right = 2, value = 0.5 } (x)
    x = concat { axis = 2 } (avgpool2d { 3, stride = 2, padding = 1 } (x),
        maxpool2d { 3, stride = 2, padding = 1 } (x),
        avgpool2d { 3, stride = 2, padding = 1, include_padding = false } (x))
    x = adaptive_avgpool2d { { 5, 4 } } (x)
    x = transpose { 1, 3, 2 } (reshape { 24, 20 } (x))
    x = rmsnorm "n" {} (linear "in" { 24 } (x))
    local q, k = linear "q" { 24 } (x), linear "k" { 12 } (x)
    q, k = rotary { heads = 4, base = 50 } (q), rotary { heads = 2, base = 50 } (slice { axis = 2, to = 9 } (k))
    x = x + attend { heads = 4, kv_heads = 2 } (q, k, slice { axis = 2, from = 3, to = 11 } (linear "v" { 12 } (x)))
    x = x + attend { heads = 3, causal = true } (linear "qkv" { 72, store = "in_out" } (x))
    local a, b = linear "a" { 24 } (x), linear "b" { 24 } (x)
    x = exp(-square(a)) + abs(b) + sqrt(square(a) + 1) + sin(a) * cos(b) + sigmoid(a) / (2 + tanh(b))
    x = x + leaky_relu {} (a) + softplus {} (b) + elu {} (a) - silu {} (b) + gelu {} (a)
    x = x + min(a, b) * tanh(a) + clamp { min = -1, max = 1 } (a)
    x = x + where(gt(a, b), a, 2 * b) + where(le(a, 0), b, -a) + relu(b) ^ 2
    x = concat { axis = 2 } (max { axis = 2 } (x), sum { axis = 2 } (softmax {} (x)),
        mean { axis = 2 } (log_softmax {} (x)), pick { axis = 2, index = 3 } (x))
    return linear "head" { 10 } (layernorm "last" {} (x))
end)
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { epochs = 1, seed = 1 }
