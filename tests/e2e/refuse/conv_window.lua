-- expect: 5: conv2d 'c': a window over 9 places of the width, which has 8 with padding: expected at most as many
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
    reshape { 1, 8, 8 }, conv2d "c" { 6, { 3, 5 }, dilation = 2 }, flatten {}, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
