-- expect: 4: the number 1e-300 is 0 in f32, which holds 
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { reshape { 1, 8, 8 }, batchnorm "bn" { eps = 1e-300 }, flatten {}, linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 10 }
