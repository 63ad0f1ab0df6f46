-- expect: 4: residual: unknown field 'shortcutt', expected a list of layers
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { residual { linear "a" { 64 }, shortcutt = { relu {} } }, linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 10 }
