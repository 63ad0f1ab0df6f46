-- expect: 2: data: digits/digits.csv.gz:1: a line of numbers, expected a header: columns are given by names
data       { "csv", train = "digits/digits.csv.gz", target = "label" }
batch      (16)
accumulate (4)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
train      { epochs = 2 }
