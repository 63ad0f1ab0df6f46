-- expect: 2: data: kind is 'xlsx', expected one of 'csv', 'idx', 'cifar10', 'text', 'tokens', 'npy', 'tensors'
data       { "xlsx", train = "digits/digits.csv.gz" }
batch      (16)
accumulate (4)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
train      { epochs = 2 }
