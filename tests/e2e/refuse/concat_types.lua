-- expect: 6: concat: tensor 2 is i32 (16, 1), the first real (16, 12): expected the same but for axis 2
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return concat { axis = 2 } (x, reshape { 1 } (batch.target))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
