-- expect: 3: batch: global is 100, which 16 rows x 1 rank = 16 does not divide
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      { 16, global = 100 }
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
train      { epochs = 2 }
