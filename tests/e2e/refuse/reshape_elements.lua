-- expect: 6: reshape: (16, 12) has 12 elements per row, which (5, -1) cannot hold
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return reshape { 5, -1 } (x)
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
