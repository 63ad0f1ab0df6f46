-- expect: 5: batchnorm 'bn': rows = 8 makes groups inside of a rank, and parallel.sync_batchnorm one group of the rows of all ranks, expected one of both
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
    batchnorm "bn" { rows = 8 }, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
parallel  { "ddp", sync_batchnorm = true }
