-- convolutions with groups, strides, dilation and padding; every pool; batchnorm by micro-batch
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (4)
accumulate (2)
model      { reshape { 1, 8, 8 }, conv2d "c1" { 6, 3, padding = 1, bias = false }, batchnorm "bn" {}, gelu {},
             maxpool2d { 2, stride = 1 }, conv2d "c2" { 6, { 3, 2 }, padding = 1, groups = 3 }, relu {},
             pad { 1, value = 0.5 }, conv2d "c3" { 8, 3, stride = 2, dilation = 2, padding = 1 }, tanh {},
             avgpool2d { 2, padding = 1, include_padding = false }, adaptive_avgpool2d { 2 },
             conv2d "c4" { 5, 1 }, avgpool2d { "global" }, flatten {}, linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
