-- expect: 4: model: the function gives an empty table, expected tensors by name
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 10 } (batch.input)
    return {}
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
