-- expect: 6: optimizer 'sgd': groups is false, expected a list
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, groups = false }
train      { updates = 10 }
