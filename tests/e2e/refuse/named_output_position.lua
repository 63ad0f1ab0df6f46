-- expect: 4: model: the table it gives has the key '1', expected names of letters, digits and _
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 10 } (batch.input)
    return { x, x }
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
