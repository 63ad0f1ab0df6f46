-- expect: 6: slice: elements 3..13 found, axis 2 of (16, 12) has 1..12
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return slice { axis = 2, from = 3, to = 13 } (x)
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
