-- a function of each element of the gradient, then bounds of its elements and norm
data       { "csv", train = "rows.csv", target = "last", split = { eval = 20, seed = 1 } }
batch      (5)
accumulate (2)
model      { linear "in" { 12 }, times(3) "h" { residual { linear "fc1" { 20 }, gelu {}, linear "fc2" { 12 } } },
             linear "out" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.05, groups = { { "*.bias", weight_decay = 0 } } }
schedule   { "cosine", warmup = 3 }
gradient   (function(g, w) return 2 * g + 0.01 * tanh(w) end)
clip       { 0.02, value = 0.002 }
train      { updates = 40, seed = 7 }
eval       { every = 4, metrics = { "loss", "accuracy" } }
