-- expect: 5: batchnorm 'bn': data.last = "pad" fills a micro-batch with rows that are not there, expected "drop"
data      { "csv", train = "digits/digits.csv.gz", target = "last", last = "pad" }
batch     (16)
model {
    batchnorm "bn" {}, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
