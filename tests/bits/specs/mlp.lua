-- layers in a loop, with residuals: the base of most cases
data       { "csv", train = "rows.csv", target = "last", split = { eval = 20, seed = 1 } }
batch      (5)
accumulate (2)
model      { linear "in" { 12 }, times(3) "h" { residual { linear "fc1" { 20 }, gelu {}, linear "fc2" { 12 } } },
             linear "out" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.05, groups = { { "*.bias", weight_decay = 0 } } }
schedule   { "cosine", warmup = 3 }
clip       (0.05)
train      { updates = 40, seed = 7 }
eval       { every = 4, metrics = { "loss", "accuracy" } }
