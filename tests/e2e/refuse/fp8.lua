-- expect: 4: precision: compute is 'fp8', expected one of 'f32', 'f64', 'bf16', 'f16'
data       { "csv", train = "digits/digits.csv.gz", target = "last" }
batch      (32)
precision  "fp8"
model      { linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 1 }
