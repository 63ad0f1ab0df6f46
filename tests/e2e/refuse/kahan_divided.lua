-- expect: 9: precision: accum = "kahan" together with parallel "zero2" is not possible: sums of each micro-step are added to the parts of all ranks; expected accum = "f32" with it
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
accumulate (4)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
train      { epochs = 2 }
precision  { accum = "kahan" }
parallel   "zero2"
