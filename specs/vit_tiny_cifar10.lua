-- vit_tiny_cifar10: a small vision transformer on 32 x 32 images, cut into 64 patches of 4 x 4. New here:
-- CIFAR-10 with random crops and flips, reshape and transpose, the mean over an axis.
local width, heads, layers = 96, 4, 6

data       { "cifar10", train = "cifar-10-batches-bin/data_batch_*.bin", eval = "cifar-10-batches-bin/test_batch.bin",
             mean = { .4914, .4822, .4465 }, std = { .2023, .1994, .2010 }, crop = { 32, padding = 4 }, flip = true }
batch      (50)
accumulate { 2, tail = "flush" }                       -- the last update of an epoch may be smaller
model {
    reshape { 3, 8, 4, 8, 4 }, transpose { 1, 3, 5, 2, 4, 6 }, reshape { 64, 48 },
    linear "patch" { width }, positions "position" { 64 }, dropout(0.1),
    times(layers) "block" {
        residual { layernorm "norm1" {}, block "attn" {
            linear "qkv" { 3 * width }, attend { heads = heads }, linear "proj" { width }, dropout(0.1) } },
        residual { layernorm "norm2" {}, block "mlp" {
            linear "fc1" { 4 * width }, gelu {}, linear "fc2" { width }, dropout(0.1) } },
    },
    layernorm "norm" {}, mean { axis = 2 }, linear "head" { 10 },
}
init       { { "position.weight", normal = 0.02 } }
loss       { "cross_entropy", label_smoothing = 0.1 }
optimizer  { "adamw", lr = 1e-3, weight_decay = 0.05, groups = { { rank = 1, weight_decay = 0 } } }
schedule   { "cosine", warmup = 0.05 }
clip       (1.0)
train      { epochs = 40 }
eval       { every = "epoch", metrics = { "loss", "accuracy" } }
