name "muon"
data { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5, seed = 1 } }
batch (16)
accumulate (4)
model { linear "fc1" { 64 }, relu {}, times(3) "h" { linear "a" {64}, tanh {} }, linear "fc2" { 10 } }
loss "cross_entropy"
optimizer { "muon", lr=1e-2, rest = {"adafactor", lr=1e-2} }
clip { 1.0, per_group = true }
train { epochs = 30, seed = 1 }
