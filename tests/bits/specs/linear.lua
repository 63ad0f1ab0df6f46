-- one linear layer, for the losses of real targets
data       { "csv", train = "real.csv", target = "last" }
batch      (6)
accumulate (2)
model      { linear "fc1" { 6 }, tanh {}, linear "fc2" { 1 } }
loss       "mse"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 9 }
