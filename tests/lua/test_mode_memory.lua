-- Modes of parallel that divide arrays over the ranks: each rank takes the planned bytes, no more memory is resident, and
-- less than with whole arrays by what the division leaves out.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local RANKS = 4

-- 12 * layers * width^2 parameters and a few more, each with two states; a layer is a bucket.
local function spec(mode, width, layers, bucket)
    return ([[
data       { "tokens", train = "mode_memory.bin", context = 6 }
batch      (1)
accumulate (2)
model      { embedding "wte" { 11, %d }, positions "wpe" { 6 },
             times(%d) "h" { residual { layernorm "ln_1" {}, linear "c_attn" { %d }, attend { heads = 2, causal = true },
                                        linear "c_proj" { %d } },
                             residual { layernorm "ln_2" {}, linear "c_fc" { %d }, gelu {}, linear "proj" { %d } } },
             unembed { "wte" } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-3 }
train      { updates = 2, seed = 3 }
parallel   { %q%s }
]]):format(width, layers, 3 * width, width, 4 * width, width, mode, mode ~= "zero3" and (", bucket = %q"):format(bucket) or "")
end

local WRAP = { comm = "mpi", sources = { "tests/e2e/count_memory.c" },
    ldflags = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=mmap,--wrap=ga_say" }

-- Bytes of arenas of a plan by the beginning of their names.
local function bytes_of(plan, beginning)
    local sum = 0
    for _, arena in ipairs(plan.arenas) do
        if arena.name:sub(1, #beginning) == beginning then sum = sum + arena.bytes end
    end
    return sum
end

-- The plan of a mode, and the most bytes that were resident in a rank. Rank 0 says in the log how much it has planned.
local function measured(t, programs, mode, ...)
    local p = programs.build(("mode_memory_%s_%d"):format(mode, (...)), spec(mode, ...), WRAP)
    local plan, log = programs.plan(p, "--ranks", tostring(RANKS)), t.temp() .. "/log"
    local text = programs.train(p, { ranks = RANKS, "--threads", 1, "--log", log }).err
    local most, least, seen, resident = 0, math.huge, 0, 0
    for bytes, late in text:gmatch "counted: (%d+) bytes in %d+ mappings, %d+ calls, (%d+) after ready" do
        seen, most, least = seen + 1, math.max(most, tonumber(bytes)), math.min(least, tonumber(bytes))
        t.equal(late, "0", mode .. ": allocations after ready")
    end
    t.equal(seen, RANKS)
    t.equal(most, plan.totals.bytes, mode .. ": bytes of the fullest rank")
    local said = t.load("tests/lua/json.lua").lines(host.read(log))[1].planned_bytes
    assert(least <= said and said <= most, ("%s: rank 0 planned %d bytes, %d to %d expected"):format(mode, said, least,
        most))
    for bytes in text:gmatch "resident: (%d+) KiB at most" do
        resident, seen = math.max(resident, 1024 * tonumber(bytes)), seen - 1
    end
    t.equal(seen, 0)
    return plan, resident
end

-- The plan and the memory of a mode have `expected` bytes less than those of ddp.
local function check_less(mode, plans, resident, expected)
    local planned, found = plans.ddp.totals.bytes - plans[mode].totals.bytes, resident.ddp - resident[mode]
    local bound = 0.05 * expected + 3 * 2^20
    assert(math.abs(planned - expected) <= bound, ("%s: %d bytes less are planned, about %d expected"):format(mode,
        planned, expected))
    assert(math.abs(found - expected) <= bound, ("%s: %d bytes less are resident, about %d expected"):format(mode, found,
        expected))
end

local function write_ids(t, programs)
    local ids = {}
    for i = 0, 6 * 40 do ids[i + 1] = string.pack("<I2", (i * i * 3 + i * 7) % 11) end
    t.write(programs.folder() .. "/data/mode_memory.bin", table.concat(ids))
end

local function check(t, ...)
    local programs, plans, resident = t.load("tests/lua/programs.lua")(t), {}, {}
    write_ids(t, programs)
    for _, mode in ipairs { "ddp", "zero1", "zero2", "zero3" } do
        plans[mode], resident[mode] = measured(t, programs, mode, ...)
    end
    local left_out = (RANKS - 1) / RANKS
    local state, gradients = left_out * bytes_of(plans.ddp, "state_"), left_out * bytes_of(plans.ddp, "gradients")
    check_less("zero1", plans, resident, state)
    check_less("zero2", plans, resident, state + gradients - bytes_of(plans.zero2, "windows"))
    local parameters = left_out * bytes_of(plans.ddp, "parameters") + bytes_of(plans.ddp, "views")
    check_less("zero3", plans, resident, state + gradients + parameters - bytes_of(plans.zero3, "windows")
        - bytes_of(plans.zero3, "chunks"))
end

add("2 million parameters on 4 ranks: memory falls by what is divided", function(t) check(t, 160, 6, "1MiB") end)

add("10 million parameters on 4 ranks: memory falls by what is divided", function(t)
    t.long()
    check(t, 320, 8, "4MiB")
end)

-- === what zero3 takes at most =====================================================================

-- A rank has a part of parameters, gradients and two states, 16 bytes for each parameter; what is gathered, exchanged
-- and computed; 5 % and 3 MiB for all else. Not counted are pages of files, those of the program and of MPI's libraries, which all ranks
-- of a host share.
local function most_of(plan)
    local most = 16 * plan.totals.parameters / RANKS
    for _, name in ipairs { "windows", "chunks", "wires", "activations" } do most = most + bytes_of(plan, name) end
    return 1.05 * most + 3 * 2^20
end

-- Two runs of an update, of which the second one loads what the first one has saved.
local function check_most(t, width, layers)
    local programs, folder = t.load("tests/lua/programs.lua")(t), t.temp()
    write_ids(t, programs)
    local p = programs.build(("mode_memory_most_%d"):format(width), spec("zero3", width, layers)
        .. "checkpoint { every = 1 }\n", WRAP)
    local plan, seen = programs.plan(p, "--ranks", tostring(RANKS)), 0
    for cycles = 1, 2 do
        local o = { ranks = RANKS, "--threads", 1, "--checkpoint", folder, "--cycles", cycles }
        if cycles == 2 then table.move({ "--resume", "latest" }, 1, 2, #o + 1, o) end
        local said = programs.train(p, o).err
        for most, files in said:gmatch "resident: (%d+) KiB at most, (%d+) KiB of files" do
            local bytes, bound = 1024 * (most - files), most_of(plan)
            assert(bytes <= bound, ("run %d: %d bytes are resident, at most %d expected"):format(cycles, bytes, bound))
            seen = seen + 1
        end
        local fullest = 0
        for bytes in said:gmatch "counted: (%d+) bytes" do fullest = math.max(fullest, tonumber(bytes)) end
        t.equal(fullest, plan.totals.bytes, "bytes of the fullest rank")
    end
    t.equal(seen, 2 * RANKS)
end

add("6 million parameters on 4 ranks: zero3 takes its parts, from the start through a save and a load", function(t)
    check_most(t, 224, 10)
end)

add("40 million parameters on 4 ranks: zero3 takes its parts, from the start through a save and a load", function(t)
    t.long()
    check_most(t, 512, 13)
end)

return tests
