-- expect: 6: positions 'p': the table has 2 rows, x has shape (16, 3, 4): expected (rows, places, width) with places at most 2
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return positions "p" { 2 } (reshape { 3, 4 } (x))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
