-- NAME.lua: what gagen writes a training program from. `gagen help WORD` explains each word here.

-- The rows: numbers, the last column is the class. The file is looked for under GAGEN_DATA, then in
-- the folder `data` beside this file; 300 rows are kept for evaluation.
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { eval = 300, seed = 1 } }

-- 16 rows per micro-step, 4 micro-steps per update: the gradient of 64 rows in the memory of 16.
batch      (16)
accumulate (4)

-- The layers in order. Anything else is a function: model(function(batch) return ... end).
model {
    linear "hidden" { 64 }, relu {},
    linear "classes" { 10 },
}
loss       "cross_entropy"

optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
schedule   { "cosine", warmup = 20 }
train      { epochs = 20, seed = 1 }
eval       { every = "epoch", metrics = { "loss", "accuracy" } }
