-- expect: 5: batchnorm 'bn': rows is 5, which does not divide the 16 rows of a micro-batch
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
    batchnorm "bn" { rows = 5 }, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
