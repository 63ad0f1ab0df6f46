-- expect: 5: batchnorm 'bn': batch.rows is "auto", but the statistics are those of a micro-batch: expected batchnorm { rows = N }
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     { "auto", global = 64 }
model {
    batchnorm "bn" {}, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
memory    { budget = "1GiB" }
