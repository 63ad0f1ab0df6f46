-- expect: 4: precision: f32 = "bf16x6" with "bf16": expected it with "f32", whose products it is about
data { "csv", train = "digits/digits.csv.gz", target = "last" }
batch (32)
precision { "bf16", f32 = "bf16x6" }
model { linear "fc" { 10 } }
loss "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train { updates = 1 }
