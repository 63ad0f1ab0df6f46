-- expect: 6: times 'h': the body turns shape (16, 32) into (16, 16), expected the same
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
accumulate (4)
model      { linear "in" { 32 },
             times(3) "h" { linear "fc" { 16 } }, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
train      { epochs = 2 }
