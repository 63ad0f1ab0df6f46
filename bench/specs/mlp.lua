-- mlp: 784, 256 and 10 values, on images as MNIST has them
data       { "idx", train = { "images.idx", "labels.idx" }, scale = 1/255, mean = { 0.1307 }, std = { 0.3081 } }
batch      (64)
accumulate (4)
model      { flatten {}, linear "fc1" { 256 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.01, momentum = 0.9 }
train      { updates = 1000000 }
log        { every = 1 }
