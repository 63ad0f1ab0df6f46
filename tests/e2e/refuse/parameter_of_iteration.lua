-- expect: 8: parameter 'h.1.fc.weight' exists already: give the layer another name
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch      (4)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 1 }
model {
    times(2) "h" { linear "fc" { 64 } }, linear "h.1.fc" { 64 }, linear "out" { 10 },
}
