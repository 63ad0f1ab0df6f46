-- products larger than one tile, ragged on all sides
data       { "csv", train = "rows.csv", target = "last" }
batch      (33)
model      { linear "a" { 133 }, relu {}, linear "b" { 70 }, layernorm "n" {}, relu {}, linear "c" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.01 }
train      { updates = 9, seed = 5 }
