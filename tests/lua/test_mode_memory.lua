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

local function check(t, ...)
    local programs, ids, plans, resident = t.load("tests/lua/programs.lua")(t), {}, {}, {}
    for i = 0, 6 * 40 do ids[i + 1] = string.pack("<I2", (i * i * 3 + i * 7) % 11) end
    t.write(programs.folder() .. "/data/mode_memory.bin", table.concat(ids))
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

return tests
