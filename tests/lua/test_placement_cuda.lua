-- Parameters in host memory on the CUDA target (parallel.placement): programs on the device library (tests/device) end
-- with the bits of a program that has all of them on the device: parameters, gradients of the last cycle, states, losses
-- of an evaluation before training. So it is with all chunks on the host, and with as many as memory.budget has no room
-- for.
local cover = dofile "tests/lua/cover.lua"
local devices = dofile "tests/lua/devices.lua"
local ranked = dofile "tests/lua/ranked.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local ALL = { "parameters", "gradients", "state" }

local needs = devices.needs_gpus

-- A run of `ranks` processes on devices, in an order by this seed: options as programs.train has them.
local function on_devices(t, environment, ranks, options)
    options.before = { t.root .. "/tests/device/ranks", tostring(ranks) }
    options.env = options.env or environment { "GAGEN_DEVICE_LAZY=1", "GAGEN_DEVICE_SEED=" .. ranks }
    return options
end

local events_of = devices.events_of

-- The word parallel of a program for `ranks` processes.
local function zero3(ranks, placement, more)
    return ('parallel { "zero3", ranks = %d, placement = %q%s }\n'):format(ranks, placement, more or "")
end

-- Bytes of a program's plan in the memory of a device.
local function device_bytes(programs, p)
    local sum = 0
    for _, arena in ipairs(programs.plan(p).arenas) do
        sum = sum + (arena.memory == "device" and arena.bytes or 0)
    end
    return sum
end

-- A program whose device holds `part` of what need not be there: 0: as little as possible, 1: all. The ends are the
-- programs host and device.
local function between(programs, name, text, ranks, part, more)
    local p = {}
    for _, placement in ipairs { "host", "device" } do
        p[placement] = programs.build(name .. "_" .. placement, text .. zero3(ranks, placement, more))
    end
    local ends = { device_bytes(programs, p.host), device_bytes(programs, p.device) }
    local budget = math.ceil((ends[1] + part * (ends[2] - ends[1])) / 1024)
    p.auto = programs.build(name .. "_auto", ("%s%smemory { budget = \"%dKiB\" }\n"):format(text,
        zero3(ranks, "auto", more), budget))
    return p, budget * 1024
end

-- The kernels of a program are those of another one, but for the update, if the device makes none.
local function check_kernels(t, p, other)
    local text = host.read(other.folder .. "/kernels.cu")
    for kernel in host.read(p.folder .. "/kernels.cu"):gmatch "\n(GA_KERNEL.-\n}\n)" do t.contains(text, kernel) end
end

-- === all kinds of places in one program ============================================================

-- The spec of errors that are planted in gathers (ranked.lua), with an optimizer that has states, and larger layers.
local KINDS = ranked.GATHERED:gsub("optimizer  %b{}", 'optimizer  { "adamw", lr = 0.01, ema = 0.9 }')
    :gsub('"fc" { 20 }', '"fc" { 200 }'):gsub("logits_rows = 8", '%0, budget = "BUDGET"') .. 'target "cuda"\n'

-- Placements, their budgets, whether copies are late or at once, and what their programs must have, so that the test is
-- about it.
local LATE, AT_ONCE = { "GAGEN_DEVICE_LAZY=1", "GAGEN_DEVICE_SEED=2" }, { "GAGEN_DEVICE_SEED=2" }
local PROGRAMS = {
    { "device", "1GiB", LATE, {} },
    { "host", "1GiB", LATE, { "PLACES[] = {GA_ON_HOST" } },
    { "auto", "440KiB", AT_ONCE, { "GA_ON_DEVICE", "GA_STATE_ON_HOST" } },
    { "auto", "310KiB", LATE, { "GA_STATE_ON_HOST", "GA_ON_HOST", "POOL[] = {" } },
}

-- The dump and the losses of a run of a program, and its device's bytes; before it, an evaluation of first values.
local function ended(t, programs, p, run)
    local log, before, losses = t.temp() .. "/log", t.temp() .. "/before", {}
    programs.train(p, run { "--eval", "--log", before })
    local dump = programs.dump(p, run { "--log", log })
    for _, list in ipairs { events_of(before, "eval"), events_of(log, "update"), events_of(log, "eval") } do
        for _, event in ipairs(list) do losses[#losses + 1] = event.loss end
    end
    return dump, losses, events_of(log, "device")[1].device_bytes
end

add("host and auto end with the bits of device", function(t)
    needs(t, 2)
    local programs, environment = devices.open(t)
    ranked.write_tokens(t, programs)
    local known, expected, first
    for i, program in ipairs(PROGRAMS) do
        local placement, budget, how, holds = table.unpack(program)
        local p = programs.build(("placed_kinds_%d"):format(i), KINDS:gsub("BUDGET", budget) .. zero3(2, placement))
        local text = host.read(p.folder .. "/memory.c") .. host.read(p.folder .. "/step.c")
        for _, part in ipairs(holds) do t.contains(text, part) end
        first = first or p
        check_kernels(t, p, first)
        local dump, losses, bytes = ended(t, programs, p, function(o)
            o.env = environment { t.all and "GAGEN_DEVICE_CHECK=1" or "GAGEN_DEVICE_CHECK=0", table.unpack(how) }
            on_devices(t, environment, 2, o)
            table.insert(o.env, "GAGEN_KERNELS=" .. first.folder)       -- compiled once
            return o
        end)
        known, expected = known or dump, expected or losses
        programs.identical(dump, known, ALL)
        t.equal(losses, expected)
        t.equal(bytes, device_bytes(programs, p))
    end
end)

-- === a cover of cases ============================================================================

local DIMENSIONS = {
    { "ranks", 2, 1, 3 },
    { "prefetch", 1, 0, 3 },
    { "model", "gpt", "mlp", "llama", "batchnorm", "bert" },
    { "a", 3, 1, 4 },
    { "tail", "flush", "drop", "carry" },
    { "clip", "clip (0.1)", "", "clip { value = 0.01 }", "gradient { function(g, w) return g + 0.01 * w end }" },
    { "precision", "f32", "bf16", "f64", "f16" },
    { "optimizer", "ema", "adamw", "sgd", "frozen" },
    { "overlap", true, false },
    { "chunks", "", "chunk_size = 150", "chunk_size = 800" },
    { "part", 0.5, 0.9, 0.2 },
}

local function fits(case)
    return not (case.clip:find "^gradient" and case.precision == "f16")
end

-- One program for each placement; returns them and the options of a run.
local function programs_of(t, programs, case, name)
    case.weight, case.eval, case.split = "sample", "eval { every = 1, batches = 2 }", "split = { eval = 24 }"
    local text = ranked.spec(case, 3, case.a, "") .. '\ntarget "cuda"\n'
    local more = (", prefetch = %d, overlap = %s%s"):format(case.prefetch, case.overlap,
        case.chunks ~= "" and ", " .. case.chunks or "")
    return between(programs, name .. host.sha256(text .. more):sub(1, 12), text, case.ranks, case.part, more)
end

local function compare(t, case)
    needs(t, case.ranks)
    local programs, environment = devices.open(t)
    ranked.write_tokens(t, programs)
    local p, budget = programs_of(t, programs, case, "placed_")
    local cycles, known, losses = case.tail == "flush" and 4 or 3, nil, nil
    for _, placement in ipairs { "device", "host", "auto" } do
        check_kernels(t, p[placement], p.device)
        local dump, list, used = ended(t, programs, p[placement], function(o)
            if #o == 2 then table.move({ "--cycles", cycles }, 1, 2, 3, o) end      -- else an evaluation
            on_devices(t, environment, case.ranks, o)
            table.insert(o.env, "GAGEN_KERNELS=" .. p.device.folder)                -- compiled once
            return o
        end)
        if known then
            programs.identical(dump, known, ALL)
            t.equal(list, losses)
        end
        known, losses = known or dump, losses or list
        local planned = device_bytes(programs, p[placement])        -- that of the fullest rank; the log has rank 0's
        assert(case.ranks > 1 and used <= planned or used == planned, ("%d bytes of %d"):format(used, planned))
        assert(placement ~= "auto" or used <= budget, ("%d bytes of %d"):format(used, budget))
    end
end

-- Without GAGEN_TEST_ALL a few cases that have all values of the first dimensions but one.
local CASES = host.environment "GAGEN_TEST_ALL" and cover.cases(DIMENSIONS, fits, 2, 100) or {
    { ranks = 3, prefetch = 0, model = "batchnorm", a = 1, tail = "drop", clip = "clip { value = 0.01 }",
        precision = "f64", optimizer = "adamw", overlap = false, chunks = "chunk_size = 150", part = 0.9 },
    { ranks = 1, prefetch = 3, model = "mlp", a = 4, tail = "carry", clip = "", precision = "bf16",
        optimizer = "sgd", overlap = true, chunks = "chunk_size = 800", part = 0.2 },
}
for _, case in ipairs(CASES) do
    add("the bits of a program on the device: " .. cover.name(DIMENSIONS, case), function(t) compare(t, case) end)
end

-- === const, margins, budgets from the least to all ================================================

-- A tail of the word parallel, and which part of what need not be on the device its memory.budget has room for.
local AUTO = { { ", gpu_margin_mem_ratio = 1", 0.6 }, { ", gpu_margin_mem_ratio = 0.2", 0.6 }, { "", 0 }, { "", 0.25 },
    { "", 0.5 }, { "", 0.75 }, { "", 1 } }

local function each_policy(t, ranks)
    needs(t, ranks)
    local programs, environment = devices.open(t)
    ranked.write_tokens(t, programs)
    local name = ("placed_policy_%d_"):format(ranks)
    local text = KINDS:gsub("BUDGET", "1GiB") .. zero3(ranks, "PLACEMENT", "MORE")
    local function built(placement, more, budget)
        local own = text:gsub("PLACEMENT", placement):gsub("MORE", more):gsub("1GiB", budget)
        return programs.build(name .. host.sha256(own):sub(1, 12), own)
    end
    local function result(p, first)
        return ended(t, programs, p, function(o)
            on_devices(t, environment, ranks, o)
            table.insert(o.env, "GAGEN_KERNELS=" .. first.folder)       -- compiled once
            return o
        end)
    end
    local device, host_alone = built("device", "", "1GiB"), built("host", "", "1GiB")
    local known, losses = result(device, device)
    local function compare_with(p, budget)
        check_kernels(t, p, device)
        local dump, found, bytes = result(p, device)
        programs.identical(dump, known, ALL)
        t.equal(found, losses)
        assert(bytes <= budget, ("%d bytes on the device of %d"):format(bytes, budget))
    end
    compare_with(built("const", "", "1GiB"), 1 << 30)
    local least, most = device_bytes(programs, host_alone), device_bytes(programs, device)
    for i = 1, t.all and #AUTO or 1 do
        local case = AUTO[i]
        local kib = math.ceil((least + case[2] * (most - least)) / 1024)
        compare_with(built("auto", case[1], kib .. "KiB"), kib * 1024)
    end
end

-- make test-all: 1 to 3 ranks, another margin and five budgets too.
for _, ranks in ipairs(host.environment "GAGEN_TEST_ALL" and { 1, 2, 3 } or { 2 }) do
    add(("const, margins, budgets from the least to all: the bits of device: %d ranks"):format(ranks), function(t)
        each_policy(t, ranks)
    end)
end

-- === skipped updates, files of other placements ===================================================

-- The programs of a spec in f16 whose second update of 4 is skipped, for 2 ranks.
local function overflowing(t)
    needs(t, 2)
    local programs, environment = devices.open(t)
    ranked.write_overflowing(t, programs)
    local text = ranked.OVERFLOWING:format 'target "cuda"'
    local p = between(programs, "placed_overflow", text, 2, 0.6)
    local function run(placement, options) return on_devices(t, environment, 2, options), p[placement] end
    return programs, run
end

local PLACEMENTS = { "device", "host", "auto" }

add("f16: an update that is skipped changes nothing, on the host neither", function(t)
    local programs, run = overflowing(t)
    local known, first
    for _, placement in ipairs(PLACEMENTS) do
        local log, dumps = nil, {}
        for i, cycles in ipairs { 1, 2, 4 } do
            log = t.temp() .. "/log"
            local options, p = run(placement, { "--cycles", cycles, "--log", log })
            dumps[i] = programs.dump(p, options)
        end
        local list = {}
        for i, event in ipairs(events_of(log, "update")) do list[i] = { event.update, event.skipped, event.scale } end
        t.equal(list[2][2], 1)
        known, first = known or list, first or dumps
        t.equal(list, known)
        programs.identical(dumps[2], dumps[1], { "parameters", "state" })
        programs.identical(dumps[3], first[3], ALL)
    end
end)

add("each placement goes on with the checkpoints of the others, in the midst of a cycle too", function(t)
    local programs, run = overflowing(t)
    local paths, options, p = {}, run("device", { "--cycles", 4 })
    local expected = programs.dump(p, options)
    for i, placement in ipairs(PLACEMENTS) do
        options, p = run(placement, { "--cycles", 4, "--stop-micro", 5, status = 75 })
        paths[i] = programs.train(p, options).checkpoint .. "/cycle-000000002-r1"
    end
    for i, placement in ipairs(PLACEMENTS) do
        options, p = run(placement, { "--cycles", 4, "--resume", paths[i % #paths + 1] })
        programs.identical(programs.dump(p, options), expected, ALL)
    end
end)

-- === accumulation ================================================================================

for _, a in ipairs { 1, 3, 4 } do
    add(("A x B = 1 x AB, with host memory too: %d micro-steps"):format(a), function(t)
        needs(t, 2)
        local programs, environment = devices.open(t)
        local case = { model = "mlp", optimizer = "adamw", tail = "flush", weight = "sample", clip = "clip (0.1)",
            precision = "f64" }
        local whole = programs.build(("placed_whole_%d"):format(a), ranked.spec(case, 2 * 3 * a, 1, ""))
        local parts = programs.build(("placed_parts_%d"):format(a), ranked.spec(case, 3, a, zero3(2, "host"))
            .. 'target "cuda"\n')
        local expected = programs.dump(whole, { "--cycles", 20 })
        local found = programs.dump(parts, on_devices(t, environment, 2, { "--cycles", 20 }))
        programs.close(found, expected, 1e-12, ALL)
    end)
end

return tests
