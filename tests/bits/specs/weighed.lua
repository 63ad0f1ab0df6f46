-- targets that do not count: a whole micro-batch of them, others here and there; missing rows
data       { "csv", train = "ignored.csv", target = "last", last = "pad", shuffle = false }
batch      (8)
accumulate { 3, tail = "flush" }
model      { linear "fc1" { 12 }, relu {}, dropout(0.2), linear "fc2" { 4 } }
loss       { "cross_entropy", ignore = 3 }
optimizer  { "sgd", lr = 1e-2, momentum = 0.9 }
train      { epochs = 3, seed = 3 }
