-- expect: 6: optimizer 'sgd': groups has the key 'bias', expected a list: values without names
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, groups = { bias = { "*.bias", weight_decay = 0 } } }
train      { updates = 10 }
