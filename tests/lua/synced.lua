-- Specs with parallel { sync_batchnorm = true }: batchnorm over the rows of all ranks.
local synced = {}

--- A small ResNet: a stem, a block with a convolution beside it, a loop over equal blocks. Its running statistics are of
--- both kinds. o: { rows, accumulate, precision, more = further words }. 1,797 rows are cycles of `accumulate` micro-steps
--- and a shorter one at the end.
function synced.spec(o)
    return ([[
local function conv(name, width, size, stride)
    return conv2d(name) { width, size, stride = stride, padding = size // 2, bias = false }
end
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { eval = 100 } }
batch      (%d)
accumulate { %d, tail = "flush" }
model {
    reshape { 1, 8, 8 }, conv("conv1", 4, 3, 1), batchnorm "bn1" { momentum = 0.25 }, relu {},
    block "layer1" {
        residual { conv("conv1", 6, 3, 2), batchnorm "bn1" { running = "cycle" }, relu {}, conv("conv2", 6, 3, 1),
                   batchnorm "bn2" {}, shortcut = { conv("down", 6, 1, 2), batchnorm "bn3" {} } }, relu {},
    },
    times(2) "h" { residual { conv("conv", 6, 3, 1), batchnorm "bn" { running = "cycle" } }, relu {} },
    avgpool2d { 4 }, flatten {}, linear "fc" { 10 },
}
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.05, momentum = 0.9 }
precision  %q
train      { updates = 5, seed = 7 }
eval       { every = 2 }
%s]]):format(o.rows, o.accumulate, o.precision or "f64", o.more or "")
end

--- The word parallel of a mode, "ddp" if nil.
function synced.sync(mode) return ('parallel { %q, sync_batchnorm = true }\n'):format(mode or "ddp") end

return synced
