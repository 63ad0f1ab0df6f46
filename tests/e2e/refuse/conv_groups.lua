-- expect: 5: conv2d 'c': 4 channels into 6 planes found, expected both to be multiples of groups = 4
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
    reshape { 4, 4, 4 }, conv2d "c" { 6, 3, groups = 4 }, flatten {}, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
