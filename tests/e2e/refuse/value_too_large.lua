-- expect: 5: model: the result of this has 3.436e+10 elements, expected at most 2147418112: a smaller batch or layer
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
accumulate (4)
model      { linear "fc1" { 2^31-1 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { epochs = 2 }
