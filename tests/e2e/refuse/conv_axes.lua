-- expect: 5: conv2d 'c': shape (16, 64) found, expected (rows, channels, height, width)
data      { "csv", train = "digits/digits.csv.gz", target = "last" }
batch     (16)
model {
    conv2d "c" { 4, 3 }, flatten {}, linear "fc" { 10 },
}
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 10 }
