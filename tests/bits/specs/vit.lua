-- images cut into patches, with crops and flips
data       { "cifar10", train = "images.bin", mean = { 0.5 }, std = { 0.25, 0.25, 0.5 }, crop = { 32, padding = 4 },
             flip = true }
batch      (2)
accumulate (2)
model {
    reshape { 3, 4, 8, 4, 8 }, transpose { 1, 3, 5, 2, 4, 6 }, reshape { 16, 192 },
    linear "patch" { 8 }, positions "position" { 16 },
    times(2) "h" {
        residual { layernorm "norm1" {}, linear "qkv" { 24 }, attend { heads = 2 }, linear "proj" { 8 } },
        residual { layernorm "norm2" {}, linear "fc1" { 12 }, gelu {}, dropout(0.1), linear "fc2" { 8 } },
    },
    layernorm "norm" {}, mean { axis = 2 }, linear "head" { 10 },
}
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 8, seed = 3 }
