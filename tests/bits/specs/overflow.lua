-- the loss of some cycles overflows: those updates are skipped and the scale falls
data       { "csv", train = "overflows.csv", target = "last", shuffle = false }
batch      (4)
accumulate (2)
model      { linear "fc1" { 16 }, relu {}, linear "fc2" { 4 } }
init       { { "fc1.weight", normal = 4 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 0.05, ema = 0.9 }
schedule   { "cosine", warmup = 2, total = 20 }
clip       (0.3)
train      { updates = 9, on_nonfinite = "skip" }
