-- expect: 10: parallel: sync_batchnorm, but the model has no batchnorm, expected one or no sync_batchnorm
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
     linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
parallel  { "zero1", sync_batchnorm = true }
