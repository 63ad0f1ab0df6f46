-- bert: a BERT with a classifier of two classes on rows of ids, some of them hidden at the end
local layers, heads, width, vocab, context = 12, 12, 768, 30522, 128
local drop = 0.1
data       { "tensors", train = "sequences_" .. vocab .. "_" .. context .. ".safetensors", target = "label" }
batch      (64)
accumulate (4)
model(function(batch)
    local x = embedding "words" { vocab, width } (batch.ids) + embedding "types" { 2, width } (batch.types)
    x = dropout(drop) (layernorm "norm" {} (positions "places" { context } (x)))
    x = times(layers) "layer" (function(x)
        local q, k, v = linear "query" { width } (x), linear "key" { width } (x), linear "value" { width } (x)
        local a = attend { heads = heads, dropout = drop } (q, k, v, batch.mask)
        x = layernorm "first" {} (x + dropout(drop) (linear "output" { width } (a)))
        local f = linear "out" { width } (gelu {} (linear "inner" { 4 * width } (x)))
        return layernorm "second" {} (x + dropout(drop) (f))
    end) (x)
    local pooled = tanh(linear "pooler" { width } (pick { axis = 2, index = 1 } (x)))
    return linear "classifier" { 2 } (dropout(drop) (pooled))
end)
init       { { "*norm.weight", value = 1 }, { "*first.weight", value = 1 }, { "*second.weight", value = 1 },
             { "*.weight", normal = 0.02 }, { "*.bias", value = 0 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 2e-5, weight_decay = 0.01 }
train      { updates = 1000000 }
log        { every = 1 }
