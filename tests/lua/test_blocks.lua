-- Results do not depend on the number of blocks where a kernel goes on behind the end of its grid: kernels over
-- elements, and twins of attention, whose blocks stay (test_hopper_attention.lua). All others have one piece of work
-- for each block, so their grid follows from the shape: plain products, attention and convolutions a tile, norms and
-- losses a row, sums a part. The blocks of the twin of a product share the slices of all tiles in equal runs, so their
-- number is one of the kernel's text, the same on each device (hopper_product.cu).
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local GPT = [[
data       { "text", train = "blocks.txt", context = 32, split = { eval = 2 } }
batch      (12)
accumulate (2)
model(function(batch)
    local x = dropout(0.1) (positions "wpe" { 32 } (embedding "wte" { 67, 64 } (batch.input)))
    x = times(2) "h" {
        residual { rmsnorm "ln_1" {}, linear "attn" { 192 }, attend { heads = 2, causal = true },
                   linear "proj" { 64 } },
        residual { layernorm "ln_2" {}, linear "fc" { 256 }, gelu {}, linear "out" { 64 }, dropout(0.1) },
    } (x)
    return unembed { "wte" } (layernorm "ln_f" {} (tanh(x)))
end)
init       { { "*", normal = 0.2 } }
loss       "cross_entropy"
clip       { norm = 1 }
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 8, seed = 3 }
]]

local PLANES = [[
data       { "csv", train = "blocks.csv", target = "last" }
batch      (8)
model(function(batch)
    local function conv(name, planes, size, stride)
        return conv2d(name) { planes, size, stride = stride, padding = size // 2, bias = false }
    end
    local x = reshape { 3, 32, 32 } (linear "in" { 3072 } (batch.input))
    x = relu {} (batchnorm "n1" { rows = 8 } (conv("c1", 16, 3, 1)(x)))
    x = maxpool2d { 2 } (relu {} (x + batchnorm "n2" { rows = 8 } (conv("c2", 16, 3, 1)(x))))
    x = avgpool2d { 2 } (relu {} (batchnorm "n3" { rows = 8 } (conv("c3", 24, 3, 2)(x))))
    return linear "out" { 8 } (flatten {} (x))
end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 1e-2, momentum = 0.9 }
train      { updates = 8, seed = 3 }
]]

-- Two cycles with grids of one block and of five have the same bits.
local function check(t, name, text)
    local programs, environment = devices.open(t)
    local bytes = {}
    for k = 1, 1000 do bytes[k] = string.char(97 + (k * k + k // 7) % 23) end
    t.write(programs.folder() .. "/data/blocks.txt", table.concat(bytes))
    programs.write_sines("blocks.csv", 16, 12)
    local kernels, folders = nil, {}
    for _, blocks in ipairs { 1, 5 } do
        local p = programs.build(("blocks_%s_%d"):format(name, blocks), text .. 'target "cuda"\n',
            { options = { "--dev", devices.small_grids(t, programs, blocks) } })
        local _, grids = host.read(p.folder .. "/launch.c"):gsub("launch[%w_]*%(q, K_[%w_]+, " .. blocks .. ",", "")
        assert(grids >= 5, grids)
        kernels = kernels or p.folder
        local folder, env = t.temp(), environment(devices.ordered(1))
        env[#env + 1] = "GAGEN_KERNELS=" .. kernels         -- the texts are the same but for a name
        programs.train(p, { "--cycles", 2, "--dump", folder, env = env })
        folders[#folders + 1] = folder
    end
    programs.identical(folders[2], folders[1], { "parameters", "gradients", "state" })
end

for _, case in ipairs { { "gpt", GPT, "bf16" }, { "gpt", GPT, "f32" }, { "planes", PLANES, "bf16" } } do
    local name, text, precision = table.unpack(case)
    add(("grids of one block and of five change no bit of %s in %s"):format(name, precision), function(t)
        if name ~= "gpt" or precision ~= "bf16" then t.long() end
        devices.needs_library(t)
        check(t, name .. "_" .. precision, text .. ('precision "%s"\n'):format(precision))
    end)
end

return tests
