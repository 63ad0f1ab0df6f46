-- The network of PyTorch's MNIST example: two convolutions, Adadelta, the rate times 0.7 after each epoch.
data       { "idx", train = { "mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz" },
             eval = { "mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz" },
             scale = 1/255, mean = { 0.1307 }, std = { 0.3081 } }
batch      (64)
model      { conv2d "conv1" { 32, 3 }, relu {}, conv2d "conv2" { 64, 3 }, relu {}, maxpool2d { 2 }, dropout(0.25),
             flatten {}, linear "fc1" { 128 }, relu {}, dropout(0.5), linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adadelta", lr = 1 }
schedule   { "step", step_size = 1, gamma = 0.7, by = "epoch" }
train      { epochs = 14 }
eval       { every = "epoch", metrics = { "loss", "accuracy" } }
