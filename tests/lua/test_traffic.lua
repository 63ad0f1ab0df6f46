-- The bytes that a plan says of a kernel are those that the device library counts: each byte of global memory that a
-- launch reads or writes, once.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data       { "text", train = "traffic.txt", context = 32, split = { eval = 2 } }
batch      (4)
model(function(batch)
    local x = positions "wpe" { 32 } (embedding "wte" { 64, 64 } (batch.input))
    x = times(2) "h" {
        residual { layernorm "ln_1" {}, linear "attn" { 192 }, attend { heads = 2, causal = true },
                   linear "proj" { 64 } },
        residual { layernorm "ln_2" {}, linear "fc" { 256 }, gelu {}, linear "out" { 64 } },
    } (x)
    return unembed { "wte" } (layernorm "ln_f" {} (x))
end)
init       { { "*", normal = 0.2 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 8, seed = 3 }
target     "cuda"
]]

-- Kernels whose bytes the plan does not know within 5 %.
local OTHERS = {
    embedding = "the plan has a row of the table for each id, though ids repeat",
    embedding_dw = "the plan has all rows of the table, though few have ids",
    id_order = "its blocks count in shared memory",
    positions = "the plan has the table once for each row of the batch",
    decide = "the plan has nothing for it: a few hundred bytes",
}

-- Numbers of the step and of a micro-batch that the plan leaves out.
local FEW_BYTES = 128

-- A residual net of planes by octets: batchnorm with statistics of tiles and of parts, a stride, a pool.
local PLANES = [[
data       { "csv", train = "traffic.csv", target = "last" }
batch      (8)
model(function(batch)
    local function conv(name, planes, size, stride)
        return conv2d(name) { planes, size, stride = stride, padding = size // 2, bias = false }
    end
    local x = reshape { 3, 32, 32 } (linear "in" { 3072 } (batch.input))
    x = relu {} (batchnorm "n1" { rows = 8 } (conv("c1", 64, 3, 1)(x)))
    x = relu {} (x + batchnorm "n2" { rows = 8 } (conv("c2", 64, 3, 1)(x)))
    x = relu {} (batchnorm "n3" { rows = 8 } (conv("c3", 128, 3, 2)(x)))
    return linear "out" { 8 } (flatten {} (avgpool2d { "global" } (x)))
end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 1e-2 }
train      { updates = 8, seed = 3 }
target     "cuda"
]]

-- Runs a cycle of a program on the device library and compares the bytes of its kernels with the plan's, those of all
-- functions that launch it together; returns how many functions are compared.
local function compare(t, programs, environment, p)
    local file = t.root .. "/" .. t.temp() .. "/traffic"
    local env = environment(devices.checked(1))
    env[#env + 1] = "GAGEN_DEVICE_TRAFFIC=" .. file
    programs.train(p, { "--cycles", 1, env = env })
    local counted, launches, planned, functions, compared = {}, {}, {}, {}, 0
    for name, read, written in host.read(file):gmatch "([%w_]+) (%d+) (%d+)\n" do
        counted[name] = (counted[name] or 0) + read + written
        launches[name] = (launches[name] or 0) + 1
    end
    for _, kernel in ipairs(programs.plan(p).kernels) do
        if not OTHERS[kernel.kind] and not OTHERS[kernel.fn:match "^%a+"] then
            local times = kernel.role == "views" and 2 or 1     -- before the first update, too
            local name = kernel.kernel or kernel.fn
            planned[name] = (planned[name] or 0) + kernel.bytes * kernel.calls * times
            compared, functions[kernel.fn] = compared + (functions[kernel.fn] and 0 or 1), true
        end
    end
    local wrong = {}
    for name, plan in next, planned do
        local found = assert(counted[name], name)
        if math.abs(found - plan) > 0.05 * plan + FEW_BYTES * launches[name] then
            wrong[#wrong + 1] = ("%s: %d bytes, the plan has %d"):format(name, found, plan)
        end
    end
    assert(#wrong == 0, table.concat(wrong, "\n"))
    return compared
end

for _, precision in ipairs { "bf16", "f32" } do
    add(("each kernel of a GPT in %s moves the bytes of the plan within 5 %%"):format(precision), function(t)
        devices.needs_library(t)
        local programs, environment = devices.open(t)
        local bytes = {}
        for k = 1, 900 do bytes[k] = string.char(97 + (k * k + k // 7) % 23) end
        t.write(programs.folder() .. "/data/traffic.txt", table.concat(bytes))
        local p = programs.build("traffic_" .. precision, SPEC .. ('precision "%s"\n'):format(precision))
        local compared = compare(t, programs, environment, p)
        assert(compared >= 25, compared)
    end)
end

add("each kernel of a residual net in bf16 moves the bytes of the plan within 5 %", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    programs.write_sines("traffic.csv", 16, 12)
    local compared = compare(t, programs, environment, programs.build("traffic_planes", PLANES .. 'precision "bf16"\n'))
    assert(compared >= 25, compared)
end)

return tests
