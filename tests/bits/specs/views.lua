-- ops that move values, reduce axes, look rows up, and meet tensors of other shapes
data       { "tensors", train = "ids.safetensors" }
batch      (4)
accumulate (2)
model(function(batch)
    local v = reshape { 2, 3, 4 } (tanh(linear "v" { 24 } (batch.input)))
    local words = mean { axis = 2 } (embedding "words" { 4, 4, padding = 1 } (batch.ids))
    local y = v * reshape { 2, 1, 4 } (pick { axis = 3, index = 2 } (v))
    y = y - reshape { 1, 3, 1 } (pick { axis = 2, index = 1 } (slice { axis = 4, to = 1 } (v)))
    y = y + reshape { 2, 1, 4 } (max { axis = 3 } (v)) + reshape { 2, 3, 1 } (max { axis = 4 } (v))
    y = concat { axis = 3 } (y, slice { axis = 3, from = 2, to = 3 } (v), exp(-v))
    local t = transpose { 1, 4, 2, 3 } (y)
    t = softmax {} (t) * log_softmax(t) + t
    t = mean { axis = 3 } (t) * reshape { 4, 1 } (words)
    return linear "out" { 3 } (flatten {} (t)) + linear "sums" { 3 } (flatten {} (sum(y)))
end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.05, momentum = 0.9 }
train      { updates = 8, seed = 3 }
