-- resnet18: ResNet-18 with the 3 x 3 stem for small images, on images as CIFAR-10 has them
local width, rows = 64, 32
data       { "cifar10", train = "cifar.bin", mean = { .4914, .4822, .4465 }, std = { .2023, .1994, .2010 } }
batch      (rows)
accumulate (4)
local function conv(name, planes, size, stride)
    return conv2d(name) { planes, size, stride = stride, padding = size // 2, bias = false }
end
local function basic(name, planes, stride)
    local shortcut = stride > 1 and { block "downsample" {
        conv("0", planes, 1, stride), batchnorm "1" { rows = rows } } } or nil
    return block(name) {
        residual { conv("conv1", planes, 3, stride), batchnorm "bn1" { rows = rows }, relu {},
                   conv("conv2", planes, 3, 1), batchnorm "bn2" { rows = rows }, shortcut = shortcut },
        relu {},
    }
end
local function stage(name, planes, stride)
    return block(name) { basic("0", planes, stride), basic("1", planes, 1) }
end
model {
    conv("conv1", width, 3, 1), batchnorm "bn1" { rows = rows }, relu {},
    stage("layer1", width, 1), stage("layer2", 2 * width, 2), stage("layer3", 4 * width, 2),
    stage("layer4", 8 * width, 2), avgpool2d { "global" }, flatten {}, linear "fc" { 10 },
}
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-3, weight_decay = 0.01 }
train      { updates = 1000000 }
log        { every = 1 }
