-- expect: 4: model: 'b' of the table it gives is no tensor
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 10 } (batch.input)
    return { a = x, b = 1 }
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
