-- expect: 7: train: 1e+300 epochs are 8.9e+301 updates, expected at most 9007199254740992
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { epochs = 1e300 }
