-- expect: 6: unembed: there is no embedding 'word' before this, expected words
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 12 } (batch.input)
    return unembed { "word" } (x * embedding "words" { 10, 12 } (batch.target))
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
