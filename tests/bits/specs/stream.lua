-- rows read forward
data       { "csv", train = "rows.csv", target = "last", stream = true, last = "pad" }
batch      (12)
accumulate { 3, tail = "flush" }
model      { linear "fc1" { 6 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, momentum = 0.9 }
train      { updates = 7 }
