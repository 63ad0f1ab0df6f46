-- expect: 5: batchnorm 'bn': one value per channel in a group of 1 row found, expected two or more
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
    batchnorm "bn" { rows = 1 }, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
