-- expect: 2: data: target is 66, the file has 65 columns
data       { "csv", train = "digits/digits.csv.gz", target = 66 }
batch      (16)
accumulate (4)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
train      { epochs = 2 }
