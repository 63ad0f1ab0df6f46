-- images: a small residual net for `gagen doctor --calibrate`
local rows = 16
data       { "cifar10", train = "images.bin" }
batch      (rows)
accumulate (2)
local function conv(name, planes, size, stride)
    return conv2d(name) { planes, size, stride = stride, padding = size // 2, bias = false }
end
local function basic(name, planes)
    return block(name) {
        residual { conv("conv1", planes, 3, 2), batchnorm "bn1" { rows = rows }, relu {},
                   conv("conv2", planes, 3, 1), batchnorm "bn2" { rows = rows },
                   shortcut = { block "downsample" { conv("0", planes, 1, 2), batchnorm "1" { rows = rows } } } },
        relu {},
    }
end
model {
    conv("conv1", 64, 3, 1), batchnorm "bn1" { rows = rows }, relu {}, conv("conv2", 64, 3, 1), relu {},
    basic("layer1", 128), basic("layer2", 256), basic("layer3", 256),
    avgpool2d { "global" }, flatten {}, linear "fc" { 10 },
}
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-4 }
train      { updates = 1000 }
log        { every = 1000 }
