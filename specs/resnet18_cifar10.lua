-- resnet18_cifar10: ResNet-18 with the 3 x 3 stem for small images; names and initial values are
-- torchvision's. With width 16 and one data file it learns in minutes (README).
local width, rows = 64, 50

data       { "cifar10", train = "cifar-10-batches-bin/data_batch_*.bin", eval = "cifar-10-batches-bin/test_batch.bin",
             mean = { .4914, .4822, .4465 }, std = { .2023, .1994, .2010 }, crop = { 32, padding = 4 }, flip = true }
batch      (rows)
accumulate (2)

local kaiming = {}                                     -- normal, deviation sqrt(2 / (planes x taps)), as torchvision
local function conv(path, name, planes, size, stride)
    kaiming[#kaiming + 1] = { path .. name .. ".weight", normal = sqrt(2 / (planes * size * size)) }
    return conv2d(name) { planes, size, stride = stride, padding = size // 2, bias = false }
end
local function basic(path, name, planes, stride)
    path = path .. name .. "."
    local shortcut = stride > 1 and { block "downsample" {
        conv(path .. "downsample.", "0", planes, 1, stride), batchnorm "1" { rows = rows } } } or nil
    return block(name) {
        residual { conv(path, "conv1", planes, 3, stride), batchnorm "bn1" { rows = rows }, relu {},
                   conv(path, "conv2", planes, 3, 1), batchnorm "bn2" { rows = rows }, shortcut = shortcut },
        relu {},
    }
end
local function stage(name, planes, stride)
    return block(name) { basic(name .. ".", "0", planes, stride), basic(name .. ".", "1", planes, 1) }
end

model {
    conv("", "conv1", width, 3, 1), batchnorm "bn1" { rows = rows }, relu {},
    stage("layer1", width, 1), stage("layer2", 2 * width, 2), stage("layer3", 4 * width, 2),
    stage("layer4", 8 * width, 2), avgpool2d { "global" }, flatten {}, linear "fc" { 10 },
}
init       (kaiming)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, momentum = 0.9, weight_decay = 5e-4 }
schedule   { "cosine", warmup = 0.1 }
train      { epochs = 8 }
eval       { every = "epoch", metrics = { "loss", "accuracy" } }
