-- The bytes that a plan says of a kernel are those that the device library counts: each byte of global memory that a
-- launch reads or writes, once.
local devices = dofile "tests/lua/devices.lua"
local ordered = require "base.ordered"
local traffic = dofile "tests/lua/traffic.lua"

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

-- Of SPEC: ids of a micro-batch, places of a row, rows and elements of a row of the table; how many rows have ids,
-- since these 128 have all letters of the text.
local IDS, PLACES, ROWS, WIDTH, SEEN = 128, 32, 64, 64, 23

-- Bytes of kernels for which the plan has others, by the bytes of an activation. The plan counts a row of the table for
-- each id, and the table of positions for each row of a batch; it does not know which rows have ids.
local EXACT = {
    [("embedding_4x%dx%d"):format(PLACES, WIDTH)] = function(size)
        return IDS * 4 + SEEN * WIDTH * 4 + IDS * WIDTH * size
    end,
    positions_n = function(size)
        return PLACES * WIDTH * 4 + 2 * IDS * WIDTH * size
    end,
    [("id_order_%d"):format(ROWS + 1)] = function() return 2 * IDS * 4 + (ROWS + 1) * 4 end,
    -- the head has the same table, so that each row is added to
    [("embedding_dw_%dx%d"):format(ROWS, WIDTH)] = function(size)
        return (ROWS + 1) * 4 + IDS * 4 + IDS * WIDTH * size + 2 * SEEN * WIDTH * 4
    end,
}

-- The plan has nothing for decide, which reads and writes numbers of the step.
local OF_STEP = 1024

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
    local x = reshape { 3, 16, 16 } (linear "in" { 768 } (batch.input))
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
-- functions that launch it together; returns how many functions are compared. size: bytes of an activation.
local function compare(t, programs, environment, p, size)
    local file = t.root .. "/" .. t.temp() .. "/traffic"
    local env = environment(devices.checked(1))
    env[#env + 1] = "GAGEN_DEVICE_TRAFFIC=" .. file
    programs.train(p, { "--cycles", 1, env = env })
    local counted, planned, functions, compared = traffic.launches(file), {}, {}, 0
    for _, kernel in ipairs(programs.plan(p).kernels) do
        local times = kernel.role == "views" and 2 or 1     -- before the first update, too
        local name = kernel.kernel or kernel.fn
        planned[name] = (planned[name] or 0) + kernel.bytes * kernel.calls * times
        compared, functions[kernel.fn] = compared + (functions[kernel.fn] and 0 or 1), true
    end
    local wrong = {}
    for name, plan in ordered.each(planned) do
        local found, launches = 0, assert(counted[name], name)
        for _, launch in ipairs(launches) do found = found + launch.moved end
        local exact, least, most = EXACT[name], 0.95 * plan, 1.05 * plan + FEW_BYTES * #launches
        if exact then least, most = exact(size), exact(size) end
        if name == "decide" then least, most = 1, OF_STEP end
        if found < least or found > most then
            wrong[#wrong + 1] = ("%s: %d bytes, expected %.0f to %.0f"):format(name, found, least, most)
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
        local compared = compare(t, programs, environment, p, precision == "f32" and 4 or 2)
        assert(compared >= 30, compared)
    end)
end

add("each kernel of a residual net in bf16 moves the bytes of the plan within 5 %", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    programs.write_sines("traffic.csv", 16, 12)
    local compared = compare(t, programs, environment,
        programs.build("traffic_planes", PLANES .. 'precision "bf16"\n'), 2)
    assert(compared >= 25, compared)
end)

return tests
