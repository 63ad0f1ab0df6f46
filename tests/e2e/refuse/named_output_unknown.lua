-- expect: 8: loss: the model gives no 'c', expected one of a, b
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 10 } (batch.input)
    return { a = x, b = tanh(x) }
end)
loss      (function(out, batch) return mean(out.c) end)
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
