-- expect: 8: eval: data has no rows for it: expected data.eval = FILE, or data.split = { eval = N }
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch      (16)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { epochs = 2 }
eval       { every = "epoch" }
