-- expect: 2: data 'csv': crop does not apply
data       { "csv", train = "digits/digits.csv.gz", crop = { 32, padding = 4 } }
batch      (16)
accumulate (4)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
train      { epochs = 2 }
