-- expect: 6: embedding 'e': padding is 10, expected a row from 0 to 9
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return embedding "e" { 10, 10, padding = 10 } (batch.target)
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
