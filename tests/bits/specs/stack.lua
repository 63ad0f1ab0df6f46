-- rates that decay from layer to layer, a frozen group, an average of the parameters
data       { "csv", train = "rows.csv", target = "last", split = { eval = 20, seed = 1 } }
batch      (5)
accumulate (2)
model      { linear "fc1" { 8 }, tanh {}, times(3) "h" { linear "fc" { 8 }, tanh {} }, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, ema = 0.75, layer_decay = 0.5, groups = { { "fc1.*", frozen = true },
             { "h.*.bias", lr_scale = 3, weight_decay = 0 }, { "fc2.*", betas = { 0.8, 0.95 }, eps = 1e-3 } } }
train      { updates = 12 }
eval       { every = 4 }
