-- expect: 8: parallel: bucket is '0B', expected more than 0 and less than 2^63
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 10 }
parallel   { "ddp", bucket = "0B" }
