-- batchnorm over groups of rows, its running numbers moved once per cycle; a short last cycle
data       { "csv", train = "rows.csv", eval = "rows.csv", target = "last", shuffle = false }
batch      (10)
accumulate { 2, tail = "flush" }
model      { linear "in" { 6, bias = false }, times(2) "h" { batchnorm "bn" { rows = 5, running = "cycle" }, tanh {},
             linear "fc" { 6, bias = false } }, batchnorm "last" { rows = 5, momentum = 0.5, running = "cycle" },
             linear "out" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, momentum = 0.9 }
train      { updates = 7, seed = 3 }
eval       { every = 2 }
