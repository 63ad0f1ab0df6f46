-- The optimizer's state in a file (parallel.nvme): the bits of a program without it, in every mode; checkpoints that
-- either takes from the other; memory; disks that fail; kill -9.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local PARAMETERS_AND_STATE = { "parameters", "gradients", "state" }

-- Layers of two groups beside each other, so that a sweep goes over the file in another order than that of the file.
-- With three states of f64 a window has 174,752 elements: a weight of a layer is one segment and a part of another.
local function spec(mode, a, nvme)
    return ([[
name       "looped"
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (2)
accumulate (%d)
model      { linear "in" { 420 }, times(3) "h" { linear "a" { 420 }, tanh {} }, linear "out" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-3, weight_decay = 0.1, ema = 0.9, groups = { { "*.bias", weight_decay = 0 } } }
precision  "f64"
parallel   { %q%s%s }
eval       { every = 3, batches = 2 }
train      { updates = 40, seed = 3 }
]]):format(a, mode, mode ~= "none" and mode ~= "zero3" and ', bucket = "1MiB"' or "",
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

local function with_mode(mode, how)
    local all = { comm = mode ~= "none" and "mpi" or nil }
    for key, value in next, how or {} do all[key] = value end
    return all
end

local function build(programs, folder, mode, a, fraction, how)
    local nvme = fraction and ("{ %q, fraction = %g }"):format(folder, fraction)
    return programs.build(("nvme_%s_%d_%s"):format(mode, a, fraction and ("%g"):format(10 * fraction) or "none"),
        spec(mode, a, nvme), with_mode(mode, how))
end

-- === bits =========================================================================================

-- { mode, ranks, micro-steps, fraction }
local CASES = { { "none", 1, 3, 1 }, { "none", 1, 1, 0.3 }, { "zero1", 2, 1, 0.3 }, { "zero2", 2, 3, 1 },
    { "zero3", 3, 1, 1 } }

local ALL = {}
for _, mode in ipairs { { "none", 1 }, { "ddp", 2 }, { "zero1", 2 }, { "zero2", 3 }, { "zero3", 2 } } do
    for _, a in ipairs { 1, 3 } do
        for _, fraction in ipairs { 0.3, 1 } do ALL[#ALL + 1] = { mode[1], mode[2], a, fraction } end
    end
end

for _, case in ipairs(ALL) do
    local mode, ranks, a, fraction = table.unpack(case)
    add(("%s, %d micro-steps, %g of the state: the bits and bytes are those without a file"):format(mode, a, fraction),
        function(t)
            local wanted = t.all
            for _, c in ipairs(CASES) do
                wanted = wanted or c[1] == mode and c[3] == a and c[4] == fraction
            end
            if not wanted then t.long() end
            local programs = t.load("tests/lua/programs.lua")(t)
            local folder, count = folder_of(t, programs), ranks > 1 and ranks or nil
            local filed, plain = build(programs, folder, mode, a, fraction, IO), build(programs, folder, mode, a)
            local function run(p, threads)
                local dump = t.temp()
                for _, event in ipairs(programs.events(p, { ranks = count, "--threads", threads, "--cycles", 3,
                    "--dump", dump })) do
                    if event.event == "eval" then return dump, event.loss end
                end
            end
            local like, loss = run(plain, 1)
            for _, threads in ipairs { 1, 3 } do
                local dump, found = run(filed, threads)
                programs.identical(dump, like, PARAMETERS_AND_STATE)
                t.equal(found, loss, "loss of the averages")
            end
            check_empty(t, folder)
        end)
end

-- The bytes to and from the files of all ranks: { bytes, read, written }.
local function counted(text)
    local sum = { 0, 0, 0 }
    for bytes, read, written in text:gmatch "state: (%d+) bytes, read (%d+), written (%d+)" do
        for i, n in ipairs { bytes, read, written } do sum[i] = sum[i] + tonumber(n) end
    end
    return sum
end

add("an update reads and writes each segment once, as planned", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = build(programs, folder_of(t, programs), "none", 3, 1, IO)
    local plan = programs.plan(p).state_file
    local function run(cycles)          -- without checkpoints, which read the file too
        local result = t.run { p.train, "--quiet", "--overfit", "3", "--cycles", tostring(cycles),
            env = { "GAGEN_DATA", "GAGEN_TIMEOUT=300" } }
        t.equal(result.status, 0, result.err)
        return counted(result.err)
    end
    local one, two = run(1), run(2)      -- neither evaluates, or both do
    t.equal(one[1], plan.bytes)
    t.equal(two[2] - one[2], plan.read_bytes)
    t.equal(two[3] - one[3], plan.written_bytes)
    assert(plan.window_bytes <= 16 << 20 and plan.window_bytes < plan.bytes, plan.window_bytes)
end)

add("a checkpoint goes on without a file, and one without in a file: the same bits", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder, a = folder_of(t, programs), 1
    local filed, plain = build(programs, folder, "none", a, 0.3, IO), build(programs, folder, "none", a)
    local function start(p)
        local at = t.temp()
        programs.train(p, { "--cycles", 2, "--checkpoint", at })
        return at
    end
    local function go_on(p, at)
        return programs.dump(p, { "--cycles", 4, "--resume", at .. "/cycle-000000002" })
    end
    local from_file, from_memory = start(filed), start(plain)
    for _, name in ipairs { "model", "optimizer" } do
        t.equal(host.sha256(host.read(from_file .. "/cycle-000000002/" .. name .. ".safetensors")),
            host.sha256(host.read(from_memory .. "/cycle-000000002/" .. name .. ".safetensors")), name)
    end
    local like = programs.dump(plain, { "--cycles", 4 })
    programs.identical(go_on(plain, from_file), like)
    programs.identical(go_on(filed, from_memory), like)
end)

add("a checkpoint of a file goes on in other modes, with other ranks, with and without a file, and back", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder, a = folder_of(t, programs), 1
    -- with the file, and without
    local zero3 = { build(programs, folder, "zero3", a, 1, IO), build(programs, folder, "zero3", a), ranks = 3 }
    local none = { build(programs, folder, "none", a, 0.3, IO), build(programs, folder, "none", a) }
    local zero1 = { build(programs, folder, "zero1", a, 0.3, IO), build(programs, folder, "zero1", a), ranks = 2 }
    local function start(p, ranks)
        local at = t.temp()
        programs.train(p, { ranks = ranks, "--threads", 1, "--cycles", 1, "--checkpoint", at })
        return at .. "/cycle-000000001"
    end
    local function go_on(p, ranks, at)
        return programs.dump(p, { ranks = ranks, "--threads", 1, "--cycles", 2, "--resume", at })
    end
    for _, case in ipairs { { zero3, none }, { none, zero3 }, t.all and { zero1, zero3 } or nil } do
        local from, to = case[1], case[2]
        local filed, plain = start(from[1], from.ranks), start(from[2], from.ranks)
        for _, name in ipairs { "/model.safetensors", "/optimizer.safetensors" } do
            t.equal(host.sha256(host.read(filed .. name)), host.sha256(host.read(plain .. name)), name)
        end
        programs.identical(go_on(to[1], to.ranks, plain), go_on(to[2], to.ranks, filed), PARAMETERS_AND_STATE)
    end
end)

add("an evaluation reads and writes the averages alone, twice", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = build(programs, folder_of(t, programs), "none", 3, 1, IO)
    local result = t.run { p.train, "--quiet", "--eval", "--threads", "1", env = { "GAGEN_DATA", "GAGEN_TIMEOUT=300" } }
    t.equal(result.status, 0, result.err)
    local plan, moved = programs.plan(p), counted(result.err)
    local averages = plan.state_file.bytes // 3        -- beside m and v
    local gaps, ahead = averages - 8 * plan.totals.parameters, averages // 3   -- at the end a segment is read in vain
    assert(moved[3] <= 3 * averages and moved[3] >= 3 * averages - gaps, moved[3])      -- the first time they start
    assert(moved[2] >= 2 * averages and moved[2] <= 2 * averages + ahead, moved[2])
end)

-- Its norms of tensors need no state: they are taken before the sweep.
add("lars: the bits are those without a file", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = folder_of(t, programs)
    for _, case in ipairs { { "zero2", 2 }, t.all and { "none" } or nil } do
        local mode, ranks = case[1], case[2]
        local function dumped(nvme)
            local p = programs.build(("nvme_lars_%s_%s"):format(mode, nvme and "file" or "none"), ([[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (4)
accumulate (2)
model      { linear "in" { 24 }, times(3) "h" { linear "a" { 24 }, tanh {} }, linear "out" { 3 } }
loss       "cross_entropy"
optimizer  { "lars", lr = 1, momentum = 0.9, weight_decay = 0.1 }
parallel   { %q%s }
train      { updates = 5, seed = 3 }
]]):format(mode, nvme and (", nvme = { %q, fraction = 0.7 }"):format(folder) or ""), with_mode(mode))
            return programs.dump(p, { ranks = ranks, "--threads", ranks and 1 or 2 })
        end
        programs.identical(dumped(true), dumped(false), PARAMETERS_AND_STATE)
    end
end)

-- === skipped updates ==============================================================================

add("a skipped update leaves the state in the file as it was: f16", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = folder_of(t, programs)
    local function made(nvme)
        return programs.build("nvme_skip_" .. (nvme and "file" or "none"), ([[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (4)
accumulate (2)
model      { linear "fc1" { 24 }, relu {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
precision  "f16"
scaler     { initial_scale = 2^22, growth_interval = 2, hysteresis = 1 }
parallel   { "none"%s }
train      { updates = 30, seed = 3 }
]]):format(nvme and (", nvme = %q"):format(folder) or ""))
    end
    local filed, plain, skipped = made(true), made(false), 0
    for _, event in ipairs(programs.events(filed, {})) do
        if event.event == "update" then skipped = event.skipped end
    end
    assert(skipped > 3 and skipped < 25, skipped .. " updates are skipped")
    programs.identical(programs.dump(filed, {}), programs.dump(plain, {}))
end)

-- === memory =======================================================================================

add("memory falls by the state, but for what is on its way", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder, resident, plans = folder_of(t, programs), {}, {}
    for _, nvme in ipairs { false, true } do
        local p = programs.build("nvme_memory_" .. tostring(nvme), ([[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (1)
model      { linear "fc1" { 2048 }, relu {}, linear "fc2" { 4096 }, relu {}, linear "fc3" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
parallel   { "none"%s }
train      { updates = 2, seed = 3 }
]]):format(nvme and (", nvme = %q"):format(folder) or ""), { sources = { "tests/e2e/count_memory.c" },
            ldflags = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=mmap,--wrap=ga_say" })
        plans[nvme] = programs.plan(p)
        local text = programs.train(p, { "--threads", 1 }).err
        local bytes, late = text:match "counted: (%d+) bytes in %d+ mappings, %d+ calls, (%d+) after ready"
        t.equal(tonumber(bytes), plans[nvme].totals.bytes)
        t.equal(late, "0", "allocations after ready")
        resident[nvme] = 1024 * tonumber(text:match "resident: (%d+) KiB at most")
    end
    local state = plans[true].state_file.bytes
    assert(state >= 64 << 20, state)
    local fell = resident[false] - resident[true]
    assert(fell >= state - (32 << 20), ("%d bytes less are resident, of %d of the state"):format(fell, state))
    assert(plans[true].state_file.window_bytes <= 4 * 4 << 20)
end)

-- === disks that fail ==============================================================================

local function fails(t, plan, ...)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder, checkpoint = folder_of(t, programs), t.temp()
    local p = build(programs, folder, "none", 3, 1, IO)
    local result = programs.train(p, { "--cycles", 3, "--checkpoint", checkpoint, status = 3,
        env = { "STATE_FAIL=" .. plan } })
    t.contains(result.err, folder)
    for _, part in ipairs { ... } do t.match(result.err, part) end
    for _, name in ipairs(host.list(checkpoint)) do
        if name ~= ".lock" then error("a checkpoint of " .. plan .. ": " .. name) end
    end
    check_empty(t, folder)
end

add("no room: the message has path and bytes", function(t)
    fails(t, "reserve:1", "no room for the file of the optimizer's state: %d+ bytes are needed, %d+ are free")
end)

-- The averages begin with about 75 writes of 64 KiB; a sweep has 3 reads and 3 writes for each of its 14 segments.
add("the disk fails to read or write inside a sweep, or the file ends", function(t)
    fails(t, "read:5", "reading %d+ bytes at byte %d+ failed: Input/output error")
    fails(t, "end:7", "%d+ of %d+ bytes are there at byte %d+")
    fails(t, "write:90", "writing %d+ bytes at byte %d+ failed: Input/output error")
end)

add("a file may not be so large: the message has path and bytes", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = folder_of(t, programs)
    local p = build(programs, folder, "none", 3, 1, IO)
    local result = programs.train(p, { before = { "prlimit", "--fsize=1000000" }, "--cycles", 1, status = 3 })
    t.contains(result.err, folder .. ": no room")
    t.match(result.err, "%d+ bytes are needed, %d+ are free %(File too large%)")
    check_empty(t, folder)
end)

add("one rank of several fails: all end, and none saves", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder, checkpoint = folder_of(t, programs), t.temp()
    local p = build(programs, folder, "zero2", 3, 1, IO)
    local result = programs.train(p, { ranks = 2, "--threads", 1, "--cycles", 3, "--checkpoint", checkpoint,
        status = false, env = { "STATE_FAIL=read:5", "GAGEN_TIMEOUT=20" } })
    t.equal(result.status, 3, result.err)
    t.contains(result.err, "the file of the optimizer's state: reading")
    for _, name in ipairs(host.list(checkpoint)) do assert(not name:find "^cycle", name) end
    check_empty(t, folder)
end)

-- === kill -9 ======================================================================================

-- Reads and writes of the whole program, a number of them; the next run goes on, or begins again.
add("killed at any read or write: the next run ends with the same bits, and no file is left", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = folder_of(t, programs)
    local p = build(programs, folder, "none", 1, 0.3, IO)
    local like = programs.dump(p, { "--cycles", 4 })
    local random, moments = 12345, t.all and 50 or 5
    for i = 1, moments do
        random = (random * 1103515245 + 12345) % (1 << 31)
        local class, at = i % 2 == 0 and "read" or "write", t.temp()
        local faults = { ("LD_PRELOAD=%s/%s/tests/faults/faults.so"):format(t.root, t.build),
            ("GA_FAIL_AT=%s:%d=kill"):format(class, 20 + (random >> 8) % (class == "read" and 60 or 100)) }
        local killed = programs.train(p, { "--cycles", 4, "--checkpoint", at, status = false, env = faults })
        assert(killed.status == 128 + 9 or killed.status == 0, faults[2] .. ": status " .. killed.status .. killed.err)
        check_empty(t, folder)
        local there = host.exists(at .. "/cycle-000000004")
        local o = { "--cycles", 4, "--checkpoint", at }
        for _, name in ipairs(host.list(at)) do
            if name:find "^cycle" then o[5], o[6] = "--resume", "latest" end
        end
        if not there then programs.identical(programs.dump(p, o), like) end
    end
end)

-- === what is refused ==============================================================================

local function refused(t, text, pattern)
    local programs = t.load("tests/lua/programs.lua")(t)
    programs.folder()
    local path = t.temp() .. "/refused.lua"
    assert(host.link(("%s/%s/data"):format(t.root, programs.folder()), path:match "^(.*)/" .. "/data"))
    t.write(path, text)
    local result = programs.gagen { "check", path }
    t.equal(result.status, 1, result.err)
    t.match(result.err, pattern)
end

local function tiny(optimizer, nvme)
    return ([[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (4)
model      { linear "fc" { 3 } }
loss       "cross_entropy"
optimizer  %s
parallel   { "none", nvme = %s }
train      { updates = 2 }
]]):format(optimizer, nvme)
end

add("wrong words and optimizers are refused with the reason", function(t)
    for _, case in ipairs {
        { '{ "lamb", lr = 1e-3 }', '"/tmp"', "refused.lua:6: parallel: nvme is given, and the rule 'lamb' goes over "
            .. "the state of whole tensors" },
        { '{ "muon", lr = 1e-3, rest = { "adamw" } }', '"/tmp"', "rule 'muon' goes over the state of whole tensors" },
        { '{ "adafactor", lr = 1e-3 }', '"/tmp"', "the rule 'adafactor' goes over the state of whole tensors" },
        { '{ "sgd", lr = 1e-3 }', '"/tmp"', "no state of the optimizer belongs to all trained parameters" },
        { '{ "adamw", lr = 1e-3 }', '{ "/tmp", fraction = 0 }', "nvme has the fraction 0" },
        { '{ "adamw", lr = 1e-3 }', '{ "/tmp", fraction = 1.5 }', "nvme has the fraction 1.5" },
        { '{ "adamw", lr = 1e-3 }', "{ fraction = 0.5 }", "nvme has no folder" },
        { '{ "adamw", lr = 1e-3 }', '{ "/tmp", part = 0.5 }', "nvme has the key 'part'" },
        { '{ "adamw", lr = 1e-3 }', '""', "nvme has no folder" },
    } do refused(t, tiny(case[1], case[2]), case[3]) end
end)

add("a folder that is not there: exit 1 with its path", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("nvme_nowhere", tiny('{ "adamw", lr = 1e-3 }', '"/nowhere/at/all"'))
    t.match(programs.train(p, { status = 1 }).err, "parallel.nvme: /nowhere/at/all: no file .* No such file")
end)

return tests
