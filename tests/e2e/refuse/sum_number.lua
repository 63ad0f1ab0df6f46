-- expect: 6: sum: input 2 is the number 2, expected 1 tensor; fields are written sum { axis = 2 } (x)
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return sum(x, 2)
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
