-- expect: 8: eval: metric 'f2' is unknown, expected some of "loss", "accuracy", "f1", "perplexity", "mae", "rmse", "top5", "r2"
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 0.01, eps = 1e-8 }
train      { epochs = 2 }
eval       { metrics = { "f2" } }
