-- expect: 6: loss: ignore is 9, the model gives 9 classes: expected one of them, or a number below 0
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
accumulate (4)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 9 } }
loss       { "cross_entropy", ignore = 9 }
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
train      { epochs = 2 }
