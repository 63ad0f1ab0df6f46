-- expect: 6: unembed: x has 6 elements in its last axis, the rows of 'words' have 12
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return unembed { "words" } (linear "a" { 6 } (embedding "words" { 10, 12 } (batch.target)))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
