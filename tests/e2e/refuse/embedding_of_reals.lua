-- expect: 6: embedding 'e': found real numbers, expected ids: a field of whole numbers
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return embedding "e" { 10, 8 } (x)
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
