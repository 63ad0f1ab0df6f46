-- matrices of several shapes for rules that treat them as such
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, shuffle = false }
batch      (8)
accumulate (2)
model      { linear "in" { 24 }, tanh {}, times(3) "h" { linear "fc" { 24 }, tanh {} }, reshape { 2, 4, 3 },
             conv2d "conv" { 5, 2, padding = 1 }, relu {}, flatten {}, linear "out" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8 }
