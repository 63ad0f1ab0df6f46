-- expect: 5: avgpool2d: size is 'all', expected an integer 1..65536
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
    reshape { 1, 8, 8 }, avgpool2d { "all" }, flatten {}, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
