-- expect: 6: embedding 'e': the table has 9 rows, the ids go up to 9: expected 10 rows or more
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return embedding "e" { 9, 10 } (batch.target)
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
