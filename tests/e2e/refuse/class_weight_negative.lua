-- expect: 5: loss 'cross_entropy': class_weights: number 2 is -1, expected a number >= 0
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { linear "fc" { 10 } }
loss       { "cross_entropy", class_weights = { 1, -1 } }
optimizer  { "sgd", lr = 0.1 }
train      { updates = 10 }
