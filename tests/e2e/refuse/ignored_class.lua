-- expect: 6: loss: the model gives 9 classes, and ignore is 9: expected a value below 0, or one of the classes
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
accumulate (4)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 9 } }
loss       { "cross_entropy", ignore = 9 }
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
train      { epochs = 2 }
