-- updates with a gradient norm far above the mean are skipped, once 128 are known
data       { "csv", train = "rows.csv", target = "last" }
batch      (5)
model      { linear "fc1" { 6 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 200, seed = 7, skip_z = 0.5 }
