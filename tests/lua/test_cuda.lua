-- The CUDA target against the C target: the same spec and start must give the same numbers. The device library
-- (tests/device) runs kernels.cu on the CPU and reports races, reads of uninitialised memory, accesses out of bounds
-- and missing waits. With GAGEN_GPU_CHECK, set by tools/gpu-check to the number of GPUs, the machine's own libraries
-- are used.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local CYCLES = 5

local function digits(more)
    return [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
accumulate (4)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.01 }
schedule   "cosine"
train      { epochs = 30, seed = 1 }
eval       { every = "epoch", metrics = { "loss", "accuracy" } }
]] .. (more or "")
end

local function regions(rows, count, more)
    return ([[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 2, of = 5 } }
batch      (%d)
accumulate (%d)
model      { linear "in" { 12 },
             times(3) "h" { residual { linear "fc1" { 20 }, gelu {}, linear "fc2" { 12 } } }, linear "out" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.05, groups = { { "*.bias", weight_decay = 0 } } }
schedule   { "cosine", warmup = 3 }
clip       (0.05)
train      { updates = 40, seed = 7 }
%s]]):format(rows, count, more or "")
end

local CUDA = 'target "cuda"\n'
local F64 = 'precision "f64"\n'

local devices = dofile "tests/lua/devices.lua"
local gpus, needs_library, open, checked = devices.gpus, devices.needs_library, devices.open, devices.checked
local same_as_c = devices.same_as_c

add("digits in f32 equal the C target", function(t) same_as_c(t, "cuda_digits", digits(), 1e-5, t.all and devices.FULL) end)

add("times, residual, gelu, groups and clip in f32 equal the C target", function(t)
    t.long()
    same_as_c(t, "cuda_regions", regions(4, 4), 1e-5, devices.LIGHT)
end)

add("outliers are skipped on the device too", function(t)
    same_as_c(t, "cuda_outliers", [[
data      { "csv", train = "tiny.csv", target = "last" }
batch     (5)
model     { linear "fc1" { 6 }, tanh {}, linear "fc2" { 3 } }
loss      "cross_entropy"
optimizer { "adamw", lr = 1e-2 }
train     { updates = 200, seed = 7, skip_z = 0.5 }
]] .. F64, 1e-12, { cycles = 160, light = true })
end)

for i, clip in ipairs { '{ 0.05, p = "inf", per_group = true }', "{ value = 0.002 }",
    "{ 0.02, p = 3, value = 0.002, per_group = true }",
    "{ 0.02, value = 0.002 }\ngradient (function(g, w) return 2 * g + 0.01 * tanh(w) end)" } do
    add("clip " .. clip:gsub("\n", " ") .. " equals the C target", function(t)
        if clip == "{ value = 0.002 }" then t.long() end
        same_as_c(t, "cuda_clip" .. i, (regions(4, 4, F64):gsub("clip       [^\n]*", "clip " .. clip)), 1e-12,
            i > 1 and devices.LIGHT or nil)
    end)
end

add("times, residual, gelu, groups and clip in f64 equal the C target", function(t)
    same_as_c(t, "cuda_regions64", regions(4, 4, F64), 1e-12, devices.FULL)
end)

add("A = 1 with a loss written in the spec equals the C target", function(t)
    local text = [[
data      { "csv", train = "tiny.csv", target = "last" }
batch     (7)
model     { linear "fc1" { 9 }, tanh {}, linear "fc2" { 3 } }
loss      (function(out, batch) return mean(out * out) end)
optimizer { "sgd", lr = 0.1, momentum = 0.9 }
train     { updates = 12, seed = 5 }
]]
    same_as_c(t, "cuda_mean", text .. F64, 1e-12)
end)

add("augmented images equal the C target", function(t)
    t.load("tests/lua/formats.lua")(t).cifar_files()
    same_as_c(t, "cuda_images", [[
data      { "cifar10", train = "formats/cifar_*.bin", eval = "formats/test.bin", crop = { 28, padding = 2 },
            flip = true, mean = { 0.5 }, std = { 0.25, 0.25, 0.5 } }
batch     (3)
accumulate (2)
model     { flatten {}, linear "fc1" { 12 }, tanh {}, linear "fc2" { 10 } }
loss      "cross_entropy"
optimizer { "sgd", lr = 0.01, momentum = 0.9 }
train     { updates = 12, seed = 5 }
eval      { every = 2 }
]], 1e-5)
end)

add("a skipped update changes nothing, on the device too", function(t)
    local text = digits('init { { "*", value = 1e30 } }\n')
        :gsub("train      {", 'train { on_nonfinite = "skip",')
    local programs, environment = open(t)
    local p = programs.build("cuda_skip", text .. CUDA)
    local start = t.temp() .. "/start.safetensors"
    local folder = programs.dump(p, { "--cycles", 3, "--save-init", start, env = environment() })
    t.equal(programs.difference(folder .. "/parameters.safetensors", start), 0)
    for _, event in ipairs(programs.events(p, { "--cycles", 3, env = environment() })) do
        if event.event == "update" then
            t.equal(event.update, 0)
            t.equal(event.skipped, event.cycle)
            t.equal(event.lr, 0.01)
        end
    end
end)

add("one graph launch per cycle; the plan's bytes are allocated", function(t)
    local programs, environment = open(t)
    local p = programs.build("cuda_digits_cuda", digits() .. CUDA)
    local events = programs.events(p, { "--cycles", CYCLES, env = environment() })
    local use = events[#events - 1]
    t.equal(use.event, "device")
    t.equal(use.graph_launches, CYCLES)
    -- per cycle: 4 micro-steps of 4 + 5 kernels, norm, decision, update and 2 packed weights
    t.equal(use.graph_kernels, CYCLES * (4 * 9 + 5))
    local planned = { host = 0, pinned = 0, device = 0 }
    local plan = programs.plan(p)
    t.equal(plan.graph.nodes, 4 * 9 + 5)
    for _, arena in ipairs(plan.arenas) do planned[arena.memory] = planned[arena.memory] + arena.bytes end
    t.equal(use.device_bytes, planned.device)
    t.equal(use.pinned_bytes, planned.pinned)
    t.equal(plan.totals.bytes, planned.host + planned.pinned + planned.device)
    local text = programs.gagen { "plan", p.spec }.out
    t.match(text, "device_activations%s+[%d,]+%s+device: values of a micro%-step")
    -- without graphs: the same kernels one by one, the same bits
    local a = programs.dump(p, { "--cycles", CYCLES, env = environment() })
    local b = programs.dump(p, { "--cycles", CYCLES, "--no-graph", env = environment(checked(4)) })
    programs.identical(a, b, { "parameters", "gradients", "state" })
    events = programs.events(p, { "--cycles", CYCLES, "--no-graph", env = environment() })
    t.equal(events[#events - 1].graph_launches, 0)
end)

add("a shorter last cycle has no graph: that of its micro-steps, one behind the other", function(t)
    same_as_c(t, "cuda_tail", [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (5)
accumulate { 4, tail = "flush" }
model      { linear "fc1" { 6 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { epochs = 2, seed = 7 }
]] .. F64, 1e-12, { cycles = 9, orders = 2 })
end)

add("a cycle of too many nodes is launched as graphs of micro-steps", function(t)
    local programs, environment = open(t)
    local text = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (1)
accumulate (1430)
model      { linear "fc1" { 4 }, tanh {}, linear "fc2" { 4 }, tanh {}, linear "fc3" { 4 }, tanh {}, linear "fc4" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 2, seed = 1 }
]] .. F64
    local p, oracle = programs.build("cuda_nodes", text .. CUDA), programs.build("cuda_nodes_c", text)
    local expected = programs.dump(oracle, { "--cycles", 1 })
    local folder = t.temp()
    local events = programs.events(p, { "--cycles", 1, "--dump", folder, env = environment() })
    programs.close(folder, expected, 1e-12)
    local use, plan = events[#events - 1], programs.plan(p)
    t.equal(use.graph_launches, 1430)
    t.equal(use.graph_kernels, plan.graph.nodes_per_cycle)
    t.equal(plan.graph.of, "micro-step")
    t.match(programs.gagen { "plan", p.spec }.out, "graph  +a cycle has 21,457 nodes: each micro%-step is a graph of at")
end)

add("stopped at every micro-step, watched, and resumed", function(t)
    local programs, environment = open(t)
    local p = programs.build("cuda_digits_cuda", digits() .. CUDA)
    local env = environment { "GAGEN_DEVICE_LAZY=1", "GAGEN_DEVICE_SEED=2" }
    local straight = programs.dump(p, { "--cycles", CYCLES, env = env })
    for k = 3, 9 do
        local checkpoint = t.temp()
        programs.train(p, { "--stop-micro", k, "--checkpoint", checkpoint, status = 75, env = env })
        programs.identical(programs.dump(p, { "--cycles", CYCLES, "--resume", "latest", "--checkpoint",
            checkpoint, env = env }), straight, { "parameters", "gradients", "state" })
    end
    local folder = t.temp()
    local watched = programs.train(p, { "--cycles", CYCLES, "--watch", "fc2.bias:2", "--dump", folder,
        env = env })
    programs.identical(folder, straight, { "parameters", "gradients", "state" })
    local values = {}
    for line in watched.out:gmatch("iteration %d+, first 2 elements of fc2.bias: ([^\n]+)") do
        values[#values + 1] = line
    end
    t.equal(#values, 4 * CYCLES)
    for i = 1, 3 do t.equal(values[i], values[1]) end
    assert(values[4] ~= values[1], "the boundary changes nothing")
end)

-- A checkpoint of one target, taken at `micro`, is resumed by the other: the result equals the other's own run.
local function crosses(t, from, to, bound)
    local programs, environment = open(t)
    local text = regions(4, 4, F64)
    local built = { c = programs.build("cuda_regions64_c", text),
        cuda = programs.build("cuda_regions64_cuda", text .. CUDA) }
    local env = environment()
    local straight = programs.dump(built[to], { "--cycles", CYCLES, env = env })
    for _, micro in ipairs { 8, 10 } do
        local checkpoint = t.temp()
        programs.train(built[from], { "--stop-micro", micro, "--checkpoint", checkpoint, status = 75, env = env })
        programs.close(programs.dump(built[to], { "--cycles", CYCLES, "--resume", "latest", "--checkpoint",
            checkpoint, env = env }), straight, bound, { "parameters", "gradients", "state" })
    end
end

add("a checkpoint of the C target is resumed on a device", function(t) crosses(t, "c", "cuda", 1e-12) end)
add("a checkpoint of a device is resumed by the C target", function(t) crosses(t, "cuda", "c", 1e-12) end)

-- Ranks equal one process of the C target with so many times the micro-steps, for each order of threads in `seeds`; 0:
-- without checks. o: mode, ranks, bucket, optimizer (else adamw).
local function ranks_equal_one(t, o, seeds)
    if gpus(t) > 0 and gpus(t) < o.ranks then t.not_run(("%d GPU, %d are needed"):format(gpus(t), o.ranks)) end
    local programs, environment = open(t)
    local function spec(count, more)
        local text = regions(4, count, F64 .. (more or ""))
        return o.optimizer and text:gsub('optimizer  %b{}', "optimizer " .. o.optimizer) or text
    end
    local parallel = ("parallel { %q, bucket = %q }\n"):format(o.mode, o.bucket)
    local text = spec(2, parallel) .. CUDA
    local many = programs.build(("cuda_%s_%s"):format(o.mode, host.sha256(text):sub(1, 8)), text)
    local whole = spec(2 * o.ranks)
    local one = programs.build(whole == regions(4, 4, F64) and "cuda_regions64_c"
        or "cuda_one_" .. host.sha256(whole):sub(1, 8), whole)
    local expected = programs.dump(one, { "--cycles", CYCLES })
    for _, seed in ipairs(seeds) do
        local folder, log = t.temp(), t.temp() .. "/log.jsonl"
        local env = environment(seed > 0 and checked(seed) or nil)
        local result = t.run { t.root .. "/tests/device/ranks", tostring(o.ranks), many.train, "--quiet", "--cycles",
            tostring(CYCLES), "--checkpoint", t.temp(), "--dump", folder, "--log", log, env = env }
        t.equal(result.status, 0, result.err)
        programs.close(folder, expected, 1e-12, { "parameters", "gradients", "state" })
        local json, plan, calls = t.load("tests/lua/json.lua"), programs.plan(many), 0
        for _, c in ipairs(plan.collectives) do calls = calls + c.calls end
        for _, event in ipairs(json.lines(host.read(log))) do
            if event.event == "update" then
                t.equal(event.collectives, calls)
                t.equal(event.comm_bytes, plan.totals.comm_bytes_per_cycle)
            end
        end
    end
end

add("two ranks equal one of twice the micro-steps", function(t)
    ranks_equal_one(t, { mode = "ddp", ranks = 2, bucket = "25MiB" }, t.all and { 1, 2 } or { 1 })
end)

add("ranks that divide the state equal one", function(t)
    ranks_equal_one(t, { mode = "zero1", ranks = 2, bucket = "1KiB" }, { 1 })
    ranks_equal_one(t, { mode = "zero1", ranks = 3, bucket = "1KiB", optimizer = '{ "lamb", lr = 1e-2 }' }, { 0 })
end)

add("ranks that divide state and gradients equal one", function(t)
    ranks_equal_one(t, { mode = "zero2", ranks = 3, bucket = "1KiB" }, { 1 })
    ranks_equal_one(t, { mode = "zero2", ranks = 2, bucket = "25MiB",
        optimizer = '{ "adafactor", lr = 1e-2, ema = 0.9 }' }, { 0 })
end)

-- The kernel of a call by its name in the plan.
local function function_of(programs, p, call)
    for _, kernel in ipairs(programs.plan(p).kernels) do
        if kernel.name == call then return kernel.kernel or kernel.fn end
    end
    error("no call " .. call)
end

-- A folder with a copy of kernels.cu in which the first `from` in the function `name` is `to`.
local function planted(t, p, name, from, to)
    local text = host.read(p.folder .. "/kernels.cu")
    local start = assert(text:find(" " .. name .. "(", 1, true), name)
    local first, last = text:find(from, start, true)
    assert(first, "nothing to replace in " .. name)
    local folder = t.temp()
    t.write(folder .. "/kernels.cu", text:sub(1, first - 1) .. to .. text:sub(last + 1))
    return folder
end

local BUGS = {
    { "a missing barrier in a product", "fc1_forward", "        __syncthreads();\n", "", "device: race" },
    { "a write out of bounds", "update_all", "ga_write(run_w + first", "ga_write(run_w + 8192 + first", "device: out of bounds" },
    { "a read of shared memory that nothing wrote", "fc1_forward",
        "a_tile[deep + e][row] = some", "if (i < M) a_tile[deep + e][row] = some", "device: uninitialised read" },
}
for _, bug in ipairs(BUGS) do
    add("found: " .. bug[1], function(t)
        needs_library(t)
        local programs, environment = open(t)
        local p = programs.build("cuda_digits_cuda", digits() .. CUDA)
        local env = environment(checked(1))
        local name = function_of(programs, p, bug[2])
        env[#env + 1] = "GAGEN_KERNELS=" .. planted(t, p, name, bug[3], bug[4])
        local result = programs.train(p, { "--cycles", 2, env = env, status = 3 })
        t.contains(result.err, bug[5])
        t.contains(result.err, name)
    end)
end

add("found: a gradient written instead of added", function(t)
    local programs, environment = open(t)
    local p = programs.build("cuda_digits_cuda", digits() .. CUDA)
    local env = environment(checked(1))
    local right = programs.dump(p, { "--cycles", CYCLES, env = env })
    env[#env + 1] = "GAGEN_KERNELS=" .. planted(t, p, function_of(programs, p, "backward_fc1_weight"),
        "add ? c[at] + value : value", "value")
    local wrong = programs.dump(p, { "--cycles", CYCLES, env = env })
    t.fails(function() programs.close(wrong, right, 1e-5) end, "differs by")
end)

add("found: a copy without a wait", function(t)
    needs_library(t)
    local programs, environment = open(t)
    local p = programs.build("cuda_digits_cuda", digits() .. CUDA)
    local text = host.read(p.folder .. "/step.c")
    local wait = "GA_TRY(ga_device_wait(m->device, m->stream, m->arrived[slot], e));"
    local first, last = text:find(wait, 1, true)
    programs.edit(p, "step.c", text:sub(1, first - 1) .. text:sub(last + 1))
    local result = programs.train(p, { "--cycles", 2, env = environment(checked(1)), status = 3 })
    t.match(result.err, "device: race[^\n]*no wait orders them")
end)

add("NVRTC compiles the kernels for sm_80 and sm_90a without spills", function(t)
    local programs, _, build = open(t)
    for i, case in ipairs { { "cuda_digits_cuda", digits() }, { "cuda_regions64_cuda", regions(4, 4, F64) } } do
        local p = programs.build(case[1], case[2] .. CUDA)
        for _, arch in ipairs(t.all and { "80", "90a" } or { i == 1 and "80" or "90a" }) do
            local result = t.run { build .. "/device/nvrtc_check", p.folder .. "/kernels.cu", arch }
            if result.status == 77 then t.not_run("no libnvrtc here") end
            t.equal(result.status, 0, result.out .. result.err)
            t.match(result.out, ("sm_%s decide%%s+%%d+ registers"):format(arch))
        end
    end
end)

-- The cache gets what NVRTC compiles, and nothing else.
add("kernels that are compiled in parts, side by side, give the same bits; the cache keeps each part", function(t)
    devices.needs_library(t)
    local programs, environment = open(t)
    local p, cache = programs.build("cuda_digits_cuda", digits() .. CUDA), t.temp()
    local expected = programs.dump(p, { "--cycles", 2, env = environment() })
    local env = environment()
    table.move({ "GAGEN_KERNEL_PARTS=3", "GAGEN_KERNEL_CACHE=" .. cache }, 1, 2, #env + 1, env)
    for _ = 1, 2 do
        programs.identical(programs.dump(p, { "--cycles", 2, env = env }), expected, { "parameters", "gradients", "state" })
        t.equal(#host.list(cache), 3)
    end
    t.write(cache .. "/" .. host.list(cache)[1], "damaged")
    programs.identical(programs.dump(p, { "--cycles", 2, env = env }), expected, { "parameters", "gradients", "state" })
    env[#env + 1] = "GAGEN_DEVICE_CXX=false"
    env[#env + 1] = "GAGEN_KERNEL_CACHE=" .. t.temp()
    t.match(programs.train(p, { env = env, status = 2 }).err, "kernels%.cu: NVRTC 13%.0")
end)

add("kernels compiled before the start need no NVRTC, for their text and architecture alone", function(t)
    needs_library(t)
    local programs, environment = open(t)
    local p = programs.build("cuda_offline", digits():gsub("seed = 1 }", "seed = 11 }") .. CUDA)
    local function run(...)     -- the folder of the dump, and how many modules NVRTC has made
        local cache, env = t.temp(), environment { ... }
        env[#env + 1] = "GAGEN_KERNEL_CACHE=" .. cache
        local folder = programs.dump(p, { "--cycles", 2, env = env })
        return folder, #host.list(cache)
    end
    t.shell("rm -rf " .. p.folder .. "/modules")
    local right, made = run()
    t.equal(made, 1)
    local result = t.run { p.train, "--offline", "sm_90a", env = environment() }
    t.equal(result.status, 0, result.err)
    t.match(result.err, "kernels for sm_90: .*/modules/%x+%.cubin")
    local found
    found, made = run()
    t.equal(made, 0)
    programs.identical(found, right, { "parameters", "gradients", "state" })
    t.equal(select(2, run "GAGEN_DEVICE_ARCH=80"), 1)
    local edited = t.temp()
    t.write(edited .. "/kernels.cu", host.read(p.folder .. "/kernels.cu") .. "// edited\n")
    t.equal(select(2, run("GAGEN_KERNELS=" .. edited)), 1)
    result = t.run { p.train, "--offline", "h100", env = environment() }
    t.equal(result.status, 1)
    t.contains(result.err, '--offline: "h100", expected an architecture such as sm_80 or sm_90a')
    result = t.run { programs.build("cuda_digits_c", digits()).train, "--offline", "sm_90" }
    t.equal(result.status, 1)
    t.contains(result.err, "--offline: the kernels of this program are not those of a device")
end)

add("a device older than the spec allows is refused", function(t)
    needs_library(t)
    local programs, environment = open(t)
    local p = programs.build("cuda_arch", digits() .. 'target { "cuda", arch = 80 }')
    local result = programs.train(p, { env = environment { "GAGEN_DEVICE_ARCH=75" }, status = 3 })
    t.match(result.err, "is sm_75, the program is for sm_80 or newer; .*target { \"cuda\", arch = 75 }")
    programs.train(p, { "--cycles", 1, env = environment { "GAGEN_DEVICE_ARCH=80" } })
end)

add("without a driver the message names the missing library", function(t)
    local programs = open(t)
    local p = programs.build("cuda_digits_cuda", digits() .. CUDA)
    if t.shell("ldconfig -p").out:find("libcuda.so.1", 1, true) then t.not_run("a driver is installed") end
    local result = programs.train(p, { env = { "LD_LIBRARY_PATH=/nowhere" }, status = 3 })
    t.match(result.err, "libcuda.so.1: not found.*install NVIDIA's driver, or generate with %-%-target c")
end)

add("train-probe dumps the same tensors as the C target's", function(t)
    local programs, environment = open(t)
    local function dump(name, text, env)        -- without fusion: values of one kernel have no probes
        local p = programs.build(name, text, { probe = true, options = { "--without", "fusion" } })
        return programs.dump({ name = name, spec = p.spec, train = p.probe, folder = p.folder },
            { "--cycles", 2, "--check-finite", env = env })
    end
    local text = regions(4, 3, F64):gsub('linear "out" { 10 }', 'linear "qkv" { 72 }, reshape { 6, 12 },\n'
        .. "             attend { heads = 2, causal = true }, flatten {}, %0")
    local expected = dump("probe_c", text)
    assert(host.read(expected .. "/micro-0.safetensors"):find("attend_lse", 1, true))
    local found = dump("probe_cuda", text .. CUDA, environment(checked(1)))
    programs.close(found, expected, 1e-12, { "micro-0", "micro-1", "micro-2", "gradients", "parameters" })
end)

add("dropout draws the same on the device", function(t)
    local text = regions(4, 4, F64):gsub("gelu {},", "gelu {}, dropout(0.2),")
    same_as_c(t, "cuda_dropout", text, 1e-12)
end)

return tests
