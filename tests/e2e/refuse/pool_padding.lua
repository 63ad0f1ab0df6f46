-- expect: 5: maxpool2d: padding of 2 around a window of 3 found, expected at most half of it
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
    reshape { 1, 8, 8 }, maxpool2d { 3, padding = 2 }, flatten {}, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
