-- expect: 6: mul: shapes (16, 16) and (16) differ, expected as many axes: the first of both is the rows
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return linear "a" { 16 } (x) * mean(x)
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
