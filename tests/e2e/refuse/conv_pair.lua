-- expect: 5: conv2d 'c': stride: expected a whole number from 1, or two of them: { height, width }
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
    reshape { 1, 8, 8 }, conv2d "c" { 6, 3, stride = { 1, 2, 3 } }, flatten {}, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
