-- specs/digits_mlp.lua: 1,797 real handwritten digits; four micro-steps of 16 rows per update
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5, seed = 1 } }
batch      (16)
accumulate (4)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
schedule   "cosine"
train      { epochs = 30, seed = 1 }
eval       { every = "epoch", metrics = { "loss", "accuracy" } }
checkpoint { every = "end" }                            -- it trains in a tenth of a second
