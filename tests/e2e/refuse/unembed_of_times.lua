-- expect: 6: 'h.N.e.weight' belongs to a `times`: its layer cannot be used outside
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return unembed { "h.%d.e" } (times(2) "h" (function(x) return x + embedding "e" { 10, 12 } (batch.target) end) (x))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
