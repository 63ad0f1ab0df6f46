-- expect: 4: residual: shortcut is a number, expected a layer or a list of layers
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { residual { linear "a" { 64 }, shortcut = 3 }, linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 10 }
