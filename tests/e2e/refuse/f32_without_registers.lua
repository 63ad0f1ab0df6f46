-- expect: 4: precision: f32 is "bf16x3", and the profile "x86-64-v3" has no matrix registers for it: expected "auto" or "fma"
data { "csv", train = "digits/digits.csv.gz", target = "last" }
batch (32)
precision { "f32", f32 = "bf16x3" }
model { linear "fc" { 10 } }
loss "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train { updates = 1 }
target { "c", march = "x86-64-v3" }
