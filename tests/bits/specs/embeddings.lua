-- a table of many rows, read twice and again as the last layer; norms of narrow and wide rows
data       { "tensors", train = "ids.safetensors" }
batch      (30)
model(function(batch)
    local x = positions "places" { 3 } (embedding "words" { 300, 40 } (batch.ids))
    x = rmsnorm "r" {} (layernorm "m" { bias = false } (x))
    return unembed { "words" } (pick { axis = 2, index = 2 } (x) + max { axis = 2 } (x))
end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.5, momentum = 0.5 }
train      { updates = 9, seed = 3 }
