-- parallel { sync_batchnorm = true } on the CUDA target: programs on the device library (tests/device). W ranks of B rows are
-- one rank of W B rows on the C target; other precisions are as the C target; all gathers of training stand in graphs.
local devices = dofile "tests/lua/devices.lua"
local synced = dofile "tests/lua/synced.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local ROWS = 8          -- of a rank in a micro-step

local function opened(t, ranks)
    if devices.gpus(t) > 0 and devices.gpus(t) < ranks then
        t.not_run(("%d GPU, %d are needed"):format(devices.gpus(t), ranks))
    end
    return devices.open(t)
end

-- A program of the CUDA target. o: of synced.spec, and mode.
local function built(programs, name, o)
    return programs.build("sync_cuda_" .. name, synced.spec { rows = o.rows or ROWS, accumulate = o.accumulate,
        precision = o.precision, more = synced.sync(o.mode) .. (o.more or "") .. 'target "cuda"\n' })
end

-- A run of `ranks` processes: options as programs.train has them.
local function on(t, ranks, env, ...)
    return { before = { t.root .. "/tests/device/ranks", tostring(ranks) }, env = env, ... }
end

local events_of = devices.events_of

local RECOMPUTE = 'memory { recompute = { "layer1", "h.*", "bn1_y" } }\n'

-- With make test-all the cases marked so too.
for _, case in ipairs {
    { ranks = 2, accumulate = 1, mode = "ddp", all = true },
    { ranks = 3, accumulate = 3, mode = "ddp" },
    { ranks = 3, accumulate = 3, mode = "zero1", more = RECOMPUTE, all = true },
    { ranks = 2, accumulate = 3, mode = "zero3", more = RECOMPUTE },
} do
    add(("%d ranks are one rank with all rows: %s, A = %d%s"):format(case.ranks, case.mode, case.accumulate,
        case.more and ", recomputed" or ""), function(t)
        if case.all then t.long() end
        local programs, environment = opened(t, case.ranks)
        local a, ranks = case.accumulate, case.ranks
        local one = programs.build(("sync_cuda_one_%d_%d"):format(ranks, a), synced.spec { rows = ROWS * ranks,
            accumulate = a })
        local p = built(programs, ("%s_%d%s"):format(case.mode, a, case.more and "_again" or ""), case)
        local log, its, made = t.temp() .. "/log", t.temp() .. "/log", t.temp() .. "/collectives"
        local expected = programs.dump(one, { "--threads", 1, "--cycles", 2, "--log", log })
        local env = environment(devices.checked(1))
        env[#env + 1] = "GAGEN_DEVICE_COLLECTIVES=" .. made
        programs.close(programs.dump(p, on(t, ranks, env, "--cycles", 2, "--log", its)), expected, 1e-12, { "parameters", "state" })
        local losses, found = events_of(log, "eval"), events_of(its, "eval")
        t.equal(#found, #losses)
        for i, event in ipairs(found) do t.near(event.loss, losses[i].loss, 1e-12 * losses[i].loss) end
        local plan, calls, gathers = programs.plan(p, "--ranks", tostring(ranks)), 0, 0
        for _, c in ipairs(plan.collectives) do
            calls, gathers = calls + c.calls, gathers + (c.kind == "statistics" and c.calls or 0)
        end
        for _, event in ipairs(events_of(its, "update")) do
            t.equal({ event.collectives, event.comm_bytes }, { calls, plan.totals.comm_bytes_per_cycle })
        end
        t.equal(gathers, 12 * a)
        if devices.gpus(t) > 0 or case.mode ~= "ddp" then return end
        local graph, alone = 0, 0
        for how in host.read(made):gmatch "(%w+) all%-gather %d+\n" do
            if how == "graph" then graph = graph + 1 else alone = alone + 1 end
        end
        t.equal({ graph, alone }, { 2 * gathers, 4 })       -- evaluations gather nothing
    end)
end

add("one rank: the bits without the word", function(t)
    for _, precision in ipairs(t.all and { "f64", "f32" } or { "f32" }) do
        local programs, environment = opened(t, 1)
        local function dump(name, more)
            local p = programs.build(("sync_cuda_%s_%s"):format(name, precision), synced.spec { rows = ROWS, accumulate = 3,
                precision = precision, more = more .. 'target "cuda"\n' })
            return programs.dump(p, { "--cycles", 2, env = environment() })
        end
        programs.identical(dump("alone", synced.sync()), dump("plain", 'parallel "ddp"\n'),
            { "parameters", "gradients", "state" })
    end
end)

-- Convolutions of planes of 16 bits on tensor cores, whose tiles would leave the statistics of batchnorm behind them.
-- With another seed an element may lie so near a kink of relu that orders of sums decide about its side.
local TENSOR = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch      (%d)
model {
    reshape { 1, 8, 8 }, conv2d "stem" { 32, 3, padding = 1, bias = false }, batchnorm "bn1" {}, relu {},
    residual { conv2d "a" { 32, 3, padding = 1, bias = false }, batchnorm "bn2" { running = "cycle" }, relu {},
               conv2d "b" { 32, 3, padding = 1, bias = false }, batchnorm "bn3" {} }, relu {},
    avgpool2d { "global" }, flatten {}, linear "fc" { 10 },
}
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.05 }
precision  %q
train      { updates = 5, seed = 8 }
%s]]

add("16 bits on tensor cores: one rank with all rows up to rounding, and why statistics are apart", function(t)
    local programs, environment = opened(t, 2)
    for precision, bound in next, { f32 = t.all and 1e-5 or nil, bf16 = 4e-3 } do
        local one = programs.build("sync_cuda_tensor_one_" .. precision, TENSOR:format(32, precision, ""))
        local p = programs.build("sync_cuda_tensor_" .. precision, TENSOR:format(16, precision,
            synced.sync() .. 'target "cuda"\n'))
        local found = programs.dump(p, on(t, 2, environment(devices.checked(1)), "--cycles", 1))
        programs.close(found, programs.dump(one, { "--threads", 1, "--cycles", 1 }), bound, { "parameters" },
            programs.distance)
        local why = programs.gagen { "plan", "--why", p.spec }
        t.contains(why.out, "sync_batchnorm gathers the sums of all its rows")
        if precision == "bf16" then t.contains(host.read(p.folder .. "/kernels.cu"), "mma.sync") end
    end
end)

add("stopped inside a cycle: the same bits, and the C target goes on from it", function(t)
    local programs, environment = opened(t, 2)
    local o = { accumulate = 3, mode = "ddp" }
    local p = built(programs, "ddp_3", o)
    local c = programs.build("sync_cuda_c", synced.spec { rows = ROWS, accumulate = 3, more = synced.sync() },
        { comm = "mpi" })
    local whole, folder = programs.dump(p, on(t, 2, environment(), "--cycles", 3)), t.temp()
    local stop = on(t, 2, environment(), "--stop-micro", 8, "--checkpoint", folder)
    stop.status = 75
    programs.train(p, stop)
    local saved = folder .. "/cycle-000000002-r2"
    programs.identical(programs.dump(p, on(t, 2, environment(), "--cycles", 3, "--resume", saved)), whole,
        { "parameters", "state" })
    programs.close(programs.dump(c, { ranks = 2, "--threads", 1, "--cycles", 3, "--resume", saved }), whole, 1e-12,
        { "parameters", "state" })
end)

return tests
