-- expect: 6: optimizer: no name, expected one of adadelta, 
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { lr = 0.1 }
train      { updates = 10 }
