-- a loss of one's own, a gradient function, a function as schedule
data       { "csv", train = "rows.csv", target = "last" }
batch      (7)
model      { linear "fc1" { 9 }, tanh {}, linear "fc2" { 3 } }
loss       (function(out, batch) return mean(square(out - 0.3)) + 0.1 * mean(abs(out)) end)
gradient   (function(g, w) return where(gt(abs(g), 1e-4), g, 0) + 0.001 * tanh(w) end)
optimizer  { "adamw", lr = 1e-2 }
schedule   (function(t) return 1 / (1 + 0.1 * t) end)
clip       { 0.02, p = 3, value = 0.002, per_group = true }
train      { updates = 9 }
