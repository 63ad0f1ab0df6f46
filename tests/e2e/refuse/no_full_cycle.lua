-- expect: 3: batch: an epoch of 1437 rows has 2 micro-batches of 512 rows x 1 rank, fewer than the 4 of one update
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (512)
accumulate (4)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
train      { epochs = 2 }
