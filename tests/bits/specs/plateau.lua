-- the rate falls when evaluations get no better
data       { "csv", train = "rows.csv", eval = "real.csv", target = "last" }
batch      (5)
model      { linear "fc1" { 6 }, tanh {}, linear "fc2" { 1 } }
loss       "mse"
optimizer  { "sgd", lr = 1.5, momentum = 0.9 }
schedule   { "plateau", patience = 0, factor = 0.5 }
train      { updates = 12 }
eval       { every = 1, batches = 3 }
