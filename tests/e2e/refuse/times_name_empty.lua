-- expect: 4: times: the name is empty: letters, digits and _ expected
data       { "csv", train = "digits/digits.csv.gz", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
model      { linear "fc1" { 10 }, times(2) "" { linear "fc2" { 10 } } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 10 }
