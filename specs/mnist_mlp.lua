-- mnist_mlp: 70,000 handwritten digits (28 x 28) and two linear layers. New here: images from IDX files,
-- a batch given as a whole (accumulate = 256 / 64 = 4), groups of parameters.
data       { "idx", train = { "mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz" },
             eval = { "mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz" },
             scale = 1/255, mean = { 0.1307 }, std = { 0.3081 } }
batch      { 64, global = 256 }
model      { flatten {}, linear "fc1" { 256 }, relu {}, dropout(0.2), linear "fc2" { 10 } }
loss       { "cross_entropy", label_smoothing = 0.05 }
optimizer  { "adamw", lr = 2e-3, weight_decay = 0.01, groups = { { "*.bias", weight_decay = 0 } } }
schedule   { "cosine", warmup = 100 }
train      { epochs = 10, seed = 1 }
eval       { every = "epoch", metrics = { "loss", "accuracy" } }
log        { every = 50 }
