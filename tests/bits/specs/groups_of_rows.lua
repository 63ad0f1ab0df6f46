-- batchnorm by micro-batch and by groups of rows
data       { "csv", train = "rows.csv", eval = "rows.csv", target = "last", shuffle = false }
batch      (10)
accumulate (3)
model      { batchnorm "bn" { momentum = 0.25 }, tanh {}, linear "fc1" { 6, bias = false },
             batchnorm "bn2" { rows = 5 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 6, seed = 3 }
