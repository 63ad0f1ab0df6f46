-- expect: 5: batchnorm 'bn': parallel is "ddp": the ranks' running statistics are not combined, expected "none"
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
    batchnorm "bn" {}, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
parallel  "ddp"
