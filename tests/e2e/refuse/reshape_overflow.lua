-- expect: 4: reshape: extent 1 is 4294967296, but (16, 64) has 64 elements per row
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { reshape { 2^32, 2^32, -1 }, flatten {}, linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 10 }
