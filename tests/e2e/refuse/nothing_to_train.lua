-- expect: 7: optimizer: the loss depends on no parameter, expected at least one to train
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
accumulate (4)
model      { relu {} }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { epochs = 2 }
