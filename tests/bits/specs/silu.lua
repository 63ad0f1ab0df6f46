-- 8 silu in a row
data       { "csv", train = "rows.csv", target = "last" }
batch      (6)
accumulate (2)
model      { linear "fc1" { 7 }, silu {}, silu {}, silu {}, silu {}, silu {}, silu {}, silu {}, silu {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
