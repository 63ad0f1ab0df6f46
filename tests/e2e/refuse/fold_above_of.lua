-- expect: 2: data: split: fold is 6, expected 1..5
data       { "csv", train = "digits/digits.csv.gz", target = "last", split = { fold = 6, of = 5 } }
batch      (16)
accumulate (4)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
train      { epochs = 2 }
