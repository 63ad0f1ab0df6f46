-- expect: 6: mean: got 2 tensors, expected 1 tensor
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 10 } (batch.input)
    return mean(x, x)
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
