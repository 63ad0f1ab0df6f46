-- expect: 5: loss: class_weights: targets are from 0 to 9, and none of them counts: expected a weight above 0 for one
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { linear "fc" { 11 } }
loss       { "cross_entropy", class_weights = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 } }
optimizer  { "sgd", lr = 0.1 }
train      { updates = 10 }
