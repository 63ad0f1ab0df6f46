-- expect: 10: parallel: sync_batchnorm is given, but the mode is "none", expected
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
    batchnorm "bn" {}, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
parallel  { "none", sync_batchnorm = true }
