-- expect: 8: checkpoint: keep is 4294967296, 1..2^31-1 expected
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 10 }
checkpoint { keep = 2^32 }
