-- expect: 6: linear: 'x' has whole numbers, expected real ones
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return linear "a" { 10 } (reshape { 1 } (batch.target))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
