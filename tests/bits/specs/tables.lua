-- cycles of different lengths, in a loop where they are long
data       { "csv", train = "rows.csv", target = "last" }
batch      (4)
accumulate { 2, later = { [1] = 3, [2] = 1, [3] = 6 }, tail = "carry", unroll = 4 }
model      { linear "fc1" { 12 }, relu {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 9, seed = 3 }
