-- expect: 6: transpose: { 2, 1 } found for shape (16, 12), expected 1, which stays first, and each of 2..2 once
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return transpose { 2, 1 } (x)
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
