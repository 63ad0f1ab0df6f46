-- expect: 2: data 'csv': target is 'label', expected a column or "last"
data       { "csv", train = "digits/digits.csv.gz", target = "label" }
batch      (16)
accumulate (4)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
train      { epochs = 2 }
