-- expect: 8: loss: the model gives one tensor, found out.a, expected out alone
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model(function(batch)
    local x = linear "fc" { 10 } (batch.input)
    return x
end)
loss      (function(out, batch) return mean(out.a) end)
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
