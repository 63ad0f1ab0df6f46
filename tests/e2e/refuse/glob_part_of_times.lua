-- expect: 9: init: 'h.0.*' takes h.0.l.weight but not h.1.l.weight, expected all layers of times or none
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
accumulate (4)
model      { times(2) "h" { linear "l" { 64 } }, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { epochs = 2 }
init       { "h.0.*", value = 0 }
