-- expect: 8: loss: 'cross_entropy' takes one tensor, the model gives the tensors a, b: return one, or write the loss as a function
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 10 } (batch.input)
    return { a = x, b = tanh(x) }
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
