-- expect: 6: the number 1e-60 is 0 in f32, which holds 1.4e-45 to 3.4e38
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 0.01, eps = 1e-60 }
train      { epochs = 2 }
eval       { metrics = { "loss" } }
