-- expect: 10: parallel: sync_batchnorm, and the target "cuda" exchanges nothing inside the forward pass: expected no sync_batchnorm
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
    batchnorm "bn" {}, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
parallel  { "ddp", sync_batchnorm = true }
target    "cuda"
