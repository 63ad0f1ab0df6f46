-- expect: 8: init: unknown field 'normal', expected { { glob, normal | uniform | value = }, ... }
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 10 }
init       { normal = 0.02 }
