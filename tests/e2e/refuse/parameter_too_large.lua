-- expect: 5: model: 'fc2.weight' has 1.801e+16 elements, expected at most 1099511627776: a smaller batch or layer
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (1)
accumulate (4)
model      { linear "fc1" { 2^27 }, linear "fc2" { 2^27 }, linear "fc3" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { epochs = 2 }
