-- The optimizer's state in a file (parallel.nvme) on the CUDA target: programs on the device library (tests/device),
-- with its checks and in a shuffled order, end with the bits of programs without it; checkpoints that targets, modes
-- and ranks take from each other; what is counted; disks that fail; kill -9.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local PARAMETERS_AND_STATE = { "parameters", "gradients", "state" }

-- Layers of two groups beside each other, so that each weight and each bias is a segment, or several.
local function spec(mode, a, nvme)
    return ([[
name       "filed"
data       { "csv", train = "tiny.csv", target = "last", split = { eval = 24 } }
batch      (2)
accumulate (%d)
model      { linear "in" { 24 }, times(3) "h" { linear "a" { 24 }, tanh {} }, linear "out" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, weight_decay = 0.1, ema = 0.9, groups = { { "*.bias", weight_decay = 0 } } }
clip       (0.5)
precision  "f64"
parallel   { %q%s%s }
eval       { every = 2, batches = 2 }
train      { updates = 40, seed = 3 }
]]):format(a, mode, mode ~= "none" and mode ~= "zero3" and ', bucket = "8KiB"' or "",
        nvme and ", nvme = " .. nvme or "")
end

-- A folder for the file that has the same path in each run, so that programs are built once.
local function folder_of(t, programs)
    local folder = ("%s/%s/state"):format(t.root, programs.folder())
    assert(host.folder(folder))
    return folder
end

local function check_empty(t, folder) t.equal(host.list(folder), {}, "files that are left in " .. folder) end

local IO = { sources = { "tests/e2e/state_io.c" }, ldflags = "-Wl,--wrap=posix_fallocate,--wrap=pread,--wrap=pwrite" }

local function build(programs, folder, mode, a, fraction, target)
    local nvme, how = fraction and ("{ %q, fraction = %g }"):format(folder, fraction), {}
    if target == "c" then how.comm = mode ~= "none" and "mpi" or nil end
    if fraction then how.sources, how.ldflags = IO.sources, IO.ldflags end
    return programs.build(("nvme_%s_%s_%d_%s"):format(target or "cuda", mode, a, fraction
        and ("%g"):format(10 * fraction) or "none"), spec(mode, a, nvme) .. (target == "c" and "" or 'target "cuda"\n'),
        how)
end

-- Options of a run of so many processes on devices.
local function on_devices(t, ranks, options)
    if ranks > 1 then options.before = { t.root .. "/tests/device/ranks", tostring(ranks) } end
    return options
end

local events_of = devices.events_of

-- === bits =========================================================================================

-- { mode, ranks, micro-steps, fraction }
local CASES = { { "none", 1, 3, 1 }, { "zero2", 2, 3, 0.4 }, { "zero3", 2, 1, 1 } }

local ALL = {}
for _, mode in ipairs { { "none", 1 }, { "ddp", 2 }, { "zero1", 2 }, { "zero2", 2 }, { "zero3", 2 } } do
    for _, a in ipairs { 1, 3 } do
        for _, fraction in ipairs { 0.4, 1 } do ALL[#ALL + 1] = { mode[1], mode[2], a, fraction } end
    end
end

for _, case in ipairs(ALL) do
    local mode, ranks, a, fraction = table.unpack(case)
    add(("%s, %d micro-steps, %g of the state: the bits are those without a file"):format(mode, a, fraction),
        function(t)
            local wanted = t.all
            for _, c in ipairs(CASES) do
                wanted = wanted or c[1] == mode and c[3] == a and c[4] == fraction
            end
            if not wanted then t.long() end
            devices.needs_library(t)
            local programs, environment = devices.open(t)
            local folder = folder_of(t, programs)
            local filed, plain = build(programs, folder, mode, a, fraction), build(programs, folder, mode, a)
            local function run(p, env, ...)
                local log = t.temp() .. "/log"
                local dump = programs.dump(p, on_devices(t, ranks, { "--cycles", 5, "--log", log, env = env, ... }))
                local evals, losses = events_of(log, "eval"), {}
                for i, event in ipairs(evals) do losses[i] = event.loss end
                return dump, losses, log
            end
            local like, losses = run(plain, environment())
            local checked, found, log = run(filed, environment(devices.checked(1)))
            programs.identical(checked, like, PARAMETERS_AND_STATE)
            t.equal(found, losses, "losses of the averages")
            local plan = programs.plan(filed, "--ranks", tostring(ranks)).state_file
            local pinned, device = 0, 0
            for _, arena in ipairs(programs.plan(filed, "--ranks", tostring(ranks)).arenas) do
                if arena.memory == "pinned" then pinned = pinned + arena.bytes end
                if arena.memory == "device" then device = device + arena.bytes end
            end
            local use, counted = events_of(log, "device")[1], events_of(log, "state_file")[1]
            t.equal({ use.pinned_bytes, use.device_bytes, counted.bytes }, { pinned, device, plan.bytes })
            check_empty(t, folder)
        end)
end

add("an update reads and writes each segment once, an evaluation reads the averages once",
    function(t)
        devices.needs_library(t)
        local programs, environment = devices.open(t)
        local p = build(programs, folder_of(t, programs), "none", 3, 1)
        local whole = programs.plan(p)
        local plan, averages = whole.state_file, 8 * whole.totals.parameters
        local function run(...)
            local log = t.temp() .. "/log"
            local env = environment()
            env[#env + 1] = "GAGEN_DATA"
            local result = t.run { p.train, "--quiet", "--log", log, env = env, ... }
            t.equal(result.status, 0, result.err)
            return events_of(log, "state_file")[1]
        end
        local none, three, five = run "--eval", run("--cycles", "3", "--overfit", "3"),
            run("--cycles", "5", "--overfit", "3")
        t.equal({ none.read_bytes, none.written_bytes }, { averages, averages })   -- written: the first averages
        t.equal(three.read_bytes, 3 * plan.read_bytes + 2 * averages)              -- evaluated behind 2 and the last
        t.equal(five.read_bytes - three.read_bytes, 2 * plan.read_bytes + averages)
        t.equal(five.written_bytes - three.written_bytes, 2 * plan.written_bytes)
    end)

add("the plan names the graph of a cycle and the one behind the sweep", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local p = build(programs, folder_of(t, programs), "none", 3, 1)
    local graph, log = programs.plan(p).graph, t.temp() .. "/log"
    programs.train(p, { "--cycles", 2, "--log", log, env = environment() })
    local use = events_of(log, "device")[1]
    t.equal({ use.graph_launches, use.graph_kernels }, { 2 * 2, 2 * (graph.nodes + graph.after_sweep) })
    t.contains(programs.gagen { "plan", p.spec }.out, ("a cycle is one graph of %d nodes, and one of %d behind the sweep "
        .. "over the file\n"):format(graph.nodes, graph.after_sweep))
end)

add("a skipped update neither reads nor writes the file: f16", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local folder = folder_of(t, programs)
    local function made(nvme)
        return programs.build("nvme_cuda_skip_" .. (nvme and "file" or "none"), ([[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (4)
accumulate (2)
model      { linear "fc1" { 24 }, relu {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
precision  "f16"
scaler     { initial_scale = 2^22, growth_interval = 2, hysteresis = 1 }
parallel   { "none"%s }
train      { updates = 12, seed = 3 }
target     "cuda"
]]):format(nvme and (", nvme = %q"):format(folder) or ""))
    end
    local filed, plain, log = made(true), made(false), t.temp() .. "/log"
    local options = { "--log", log, "--checkpoint", t.temp(), env = environment() }
    programs.identical(programs.dump(filed, options), programs.dump(plain, { env = environment() }))
    local updates = events_of(log, "update")
    local skipped = updates[#updates].skipped
    assert(skipped > 1 and skipped < 11, skipped .. " updates are skipped")
    t.equal(events_of(log, "state_file")[1].written_bytes, (12 - skipped) * programs.plan(filed).state_file.bytes)
end)

-- Its norms of tensors need no state: they are taken before the sweep, in the graph.
add("lars: the bits are those without a file", function(t)
    t.long()
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local folder = folder_of(t, programs)
    for _, case in ipairs { { "none", 1 }, { "zero1", 2 } } do
        local mode, ranks = case[1], case[2]
        local function dumped(nvme)
            local p = programs.build(("nvme_cuda_lars_%s_%s"):format(mode, nvme and "file" or "none"), ([[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (4)
accumulate (2)
model      { linear "in" { 24 }, times(3) "h" { linear "a" { 24 }, tanh {} }, linear "out" { 3 } }
loss       "cross_entropy"
optimizer  { "lars", lr = 1, momentum = 0.9, weight_decay = 0.1 }
parallel   { %q%s }
train      { updates = 5, seed = 3 }
target     "cuda"
]]):format(mode, nvme and (", nvme = { %q, fraction = 0.7 }"):format(folder) or ""))
            return programs.dump(p, on_devices(t, ranks, { env = environment(nvme and devices.checked(1) or nil) }))
        end
        programs.identical(dumped(true), dumped(false), PARAMETERS_AND_STATE)
    end
end)

-- === checkpoints ==================================================================================

add("checkpoints go from a file to none, to other modes, ranks and targets, and back", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local folder = folder_of(t, programs)
    local function start(p, options)
        local at = t.temp()
        programs.train(p, table.move({ "--cycles", 2, "--checkpoint", at }, 1, 4, 1, options))
        return at .. "/cycle-000000002"
    end
    local function go_on(p, at, options)
        return programs.dump(p, table.move({ "--cycles", 4, "--resume", at }, 1, 4, 1, options))
    end
    local function device(ranks) return on_devices(t, ranks, { env = environment() }) end
    local filed = build(programs, folder, "zero2", 3, 0.4)
    local from_file = start(filed, device(2))
    local from_memory = start(build(programs, folder, "zero2", 3), device(2))
    for _, name in ipairs { "model", "optimizer" } do
        t.equal(host.sha256(host.read(("%s/%s.safetensors"):format(from_file, name))),
            host.sha256(host.read(("%s/%s.safetensors"):format(from_memory, name))), name)
    end
    -- to and from the C target, one process, without a file there and with all of the state in one here
    local c = start(build(programs, folder, "none", 3, nil, "c"), {})
    local cuda, cuda_filed = build(programs, folder, "none", 3), build(programs, folder, "none", 3, 1)
    programs.identical(go_on(cuda_filed, c, device(1)), go_on(cuda, c, device(1)))
    programs.identical(go_on(cuda_filed, from_file, device(1)), go_on(cuda, from_memory, device(1)))
    programs.identical(go_on(filed, c, device(2)), go_on(build(programs, folder, "zero2", 3), c, device(2)))
    local on_cpu = build(programs, folder, "none", 3, nil, "c")
    programs.close(go_on(on_cpu, from_file, {}), go_on(cuda, from_memory, device(1)), 1e-12)
end)

-- === disks that fail ==============================================================================

add("the disk fails inside a sweep, the file ends, or there is no room: exit 3, and nothing is saved", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local folder = folder_of(t, programs)
    local p = build(programs, folder, "none", 3, 1)
    for plan, message in next, {
        ["reserve:1"] = "no room for the file of the optimizer's state: %d+ bytes are needed, %d+ are free",
        ["read:5"] = "reading %d+ bytes at byte %d+ failed: Input/output error",
        ["end:7"] = "%d+ of %d+ bytes are there at byte %d+",
        ["write:40"] = "writing %d+ bytes at byte %d+ failed: Input/output error",
    } do
        local checkpoint = t.temp()
        local result = programs.train(p, { "--cycles", 3, "--checkpoint", checkpoint, status = 3,
            env = environment { "STATE_FAIL=" .. plan } })
        t.contains(result.err, folder)
        t.match(result.err, message)
        for _, name in ipairs(host.list(checkpoint)) do
            if name ~= ".lock" then error("a checkpoint of " .. plan .. ": " .. name) end
        end
        check_empty(t, folder)
    end
end)

add("one rank of several fails: all end, and none saves", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local folder, checkpoint = folder_of(t, programs), t.temp()
    local p = build(programs, folder, "zero2", 3, 0.4)
    local result = programs.train(p, on_devices(t, 2, { "--cycles", 3, "--checkpoint", checkpoint, status = false,
        env = environment { "STATE_FAIL=read:5", "GAGEN_TIMEOUT=20" } }))
    t.equal(result.status, 3, result.err)
    t.contains(result.err, "the file of the optimizer's state: reading")
    for _, name in ipairs(host.list(checkpoint)) do assert(not name:find "^cycle", name) end
    check_empty(t, folder)
end)

-- === kill -9 ======================================================================================

add("killed at any read or write: the next run ends with the same bits, and no file is left", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local folder = folder_of(t, programs)
    local p = build(programs, folder, "none", 3, 1)
    local like = programs.dump(p, { "--cycles", 4, env = environment() })
    local random, moments = 12345, t.all and 50 or 2
    for i = 1, moments do
        random = (random * 1103515245 + 12345) % (1 << 31)
        local class, at = i % 2 == 0 and "read" or "write", t.temp()
        local faults = environment { ("LD_PRELOAD=%s/%s/tests/faults/faults.so"):format(t.root, t.build),
            ("GA_FAIL_AT=%s:%d=kill"):format(class, 20 + (random >> 8) % (class == "read" and 90 or 130)) }
        local killed = programs.train(p, { "--cycles", 4, "--checkpoint", at, status = false, env = faults })
        assert(killed.status == 128 + 9 or killed.status == 0, faults[2] .. ": status " .. killed.status .. killed.err)
        check_empty(t, folder)
        local there = host.exists(at .. "/cycle-000000004")
        local o = { "--cycles", 4, "--checkpoint", at, env = environment() }
        for _, name in ipairs(host.list(at)) do
            if name:find "^cycle" then o[5], o[6] = "--resume", "latest" end
        end
        if not there then programs.identical(programs.dump(p, o), like) end
    end
end)

return tests
