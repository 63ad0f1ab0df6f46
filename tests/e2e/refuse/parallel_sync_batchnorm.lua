-- expect: 10: parallel: unknown field 'sync_batchnorm'; batchnorm { running = "cycle" } sums the statistics of a cycle over the ranks, and the groups of a rank are rows of its own
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
    batchnorm "bn" {}, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
parallel { "ddp", sync_batchnorm = true }
