-- The library interface of a program: a user's training loop with its own rows ends with the bits of train; misuse is
-- reported and does no harm; evaluation, handlers, parameters, ranks.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local CYCLES = 9

local function spec(more, shuffle)
    return ([[
name       "looped"
data       { "csv", train = "tiny.csv", eval = "tiny.csv", target = "last", shuffle = %s }
batch      (3)
accumulate { 4 %s }
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 40, seed = 3 }
eval       { every = 40 }
]]):format(tostring(shuffle or false), more or "")
end

local DRIVER = "tests/e2e/library.c"

-- The program, its library, and the driver of tests/e2e linked with it (how.driver: another one): { ..., drive = path }.
local function build(t, name, text, how)
    local programs = t.load("tests/lua/programs.lua")(t)
    how = how or {}
    how.lib = true
    local p = programs.build(name, text, how)
    local driver = how.driver or DRIVER
    p.drive = ("%s/drive_%s"):format(p.folder, host.sha256(host.read(driver)):sub(1, 16))
    if not host.exists(p.drive) then
        local result = t.run { how.comm == "mpi" and "mpicc" or "cc", "-Wall", "-Wextra", "-Werror", "-std=gnu11",
            "-I" .. p.folder, "-o", p.drive, driver, p.folder .. "/liblooped.a", "-ljansson", "-lz", "-lm",
            "-pthread" }
        t.equal(result.status, 0, result.err)
    end
    return programs, p
end

-- The program of most tests, optimised a little: the compiler warns of more.
local function usual(t) return build(t, "library", spec(), { level = "-O1" }) end

local function drive(t, programs, p, what, o)
    o = o or {}
    local folder = o.folder or t.temp()
    local command = o.ranks and t.mpirun(o.ranks) or {}
    table.move({ p.drive, what, tostring(o.cycles or CYCLES), folder }, 1, o.bare and 2 or 4, #command + 1, command)
    local data = t.root .. "/" .. programs.folder() .. "/data"
    command.env = { "ROWS_FILE=" .. data .. "/tiny.csv", "GAGEN_DATA=" .. data, "GAGEN_TIMEOUT=300" }
    local result = t.run(command)
    t.equal(result.status, 0, what .. "\n" .. result.out .. result.err)
    t.contains(result.out, "ok\n")
    return folder, result.out
end

-- The newest checkpoints of two folders must hold the same bytes.
local function same(t, a, b, cycles)
    local name = ("/cycle-%09d/"):format(cycles or CYCLES)
    for _, file in ipairs { "model.safetensors", "optimizer.safetensors" } do
        local x, y = host.read(a .. name .. file), host.read(b .. name .. file)
        assert(x and y, "no " .. name .. file)
        t.equal(host.sha256(x), host.sha256(y), file)
    end
end

local function trained(programs, p, o)
    o = o or {}
    table.move({ "--cycles", o.cycles or CYCLES }, 1, 2, #o + 1, o)
    return programs.train(p, o).checkpoint
end

add("a user's loop with its own rows equals train, bit for bit", function(t)
    local programs, p = usual(t)
    local expected = trained(programs, p)
    same(t, drive(t, programs, p, "own"), expected)
    same(t, drive(t, programs, p, "next"), expected)
    same(t, drive(t, programs, p, "cycles"), expected)
    same(t, drive(t, programs, p, "resumed"), expected)
end)

add("the program's shuffled rows with a flushed tail equal train, bit for bit", function(t)
    local programs, p = build(t, "library_flush", spec(', tail = "flush"', true))
    local expected = trained(programs, p, { cycles = 20 })
    same(t, drive(t, programs, p, "next", { cycles = 20 }), expected, 20)
    same(t, drive(t, programs, p, "cycles", { cycles = 20 }), expected, 20)
end)

-- flush ends a cycle early, so its last micro-step ran without the role "last".
add("with compensated sums and a flushed tail the loop equals train, bit for bit", function(t)
    local programs, p = build(t, "library_kahan", spec(', tail = "flush"', true) .. 'precision { accum = "kahan" }\n')
    local expected = trained(programs, p, { cycles = 20 })
    same(t, drive(t, programs, p, "next", { cycles = 20 }), expected, 20)
end)

add("with 16-bit sums and a flushed tail the loop equals train, bit for bit; a handler gets the sums", function(t)
    local precision = 'precision { accum = "bf16", stochastic = true }\n'
    local programs, p = build(t, "library_half_sums", spec(', tail = "flush"', true) .. precision)
    local expected = trained(programs, p, { cycles = 20 })
    same(t, drive(t, programs, p, "next", { cycles = 20 }), expected, 20)
    local _, own = build(t, "library_half_own", spec() .. precision)
    same(t, drive(t, programs, own, "own"), trained(programs, own))
    drive(t, programs, own, "handler", { bare = true })
end)

-- 30 micro-batches an epoch: eight cycles, the last one short.
add("streamed rows equal train, bit for bit", function(t)
    local text = spec(', tail = "flush"'):gsub("shuffle = false", "stream = true")
    local programs, p = build(t, "library_stream", text)
    local expected = trained(programs, p, { cycles = 20 })
    same(t, drive(t, programs, p, "next", { cycles = 20 }), expected, 20)
    same(t, drive(t, programs, p, "cycles", { cycles = 20 }), expected, 20)
end)

add("from the gradient of the output: the same up to rounding", function(t)
    local programs, p = usual(t)
    local name = ("/cycle-%09d/model.safetensors"):format(CYCLES)
    local a, b = drive(t, programs, p, "grad"), trained(programs, p)
    local worst, where = programs.difference(a .. name, b .. name)
    assert(worst < 1e-5, ("%s differs by %g"):format(where, worst))
    assert(worst > 0, "not computed here at all")
end)

add("from the gradient of the output, resumed mid-cycle: the same bits; train refuses the checkpoint", function(t)
    local programs, p = usual(t)
    local folder = drive(t, programs, p, "grad-resumed")
    same(t, folder, (drive(t, programs, p, "grad")))
    local result = programs.train(p, { "--checkpoint", folder, "--resume", folder .. "/cycle-000000001-r2", status = 1 })
    t.contains(result.err, "lies inside a cycle of backward_by_grad")
end)

add("a user's rows with an accumulation table, resumed mid-cycle: equal to train, bit for bit", function(t)
    local programs, p = build(t, "library_later", spec(", later = { [1] = 3 }"))
    same(t, drive(t, programs, p, "later"), trained(programs, p))
end)

add("next says the end of an epoch once, behind the cycle that two epochs share, resumed or not", function(t)
    local programs, p = build(t, "library_carried", spec(', tail = "carry"'))
    same(t, drive(t, programs, p, "carried"), trained(programs, p))
end)

add("batchnorm refuses a micro-batch that is not full", function(t)
    local bn = spec():gsub("tanh {}", 'batchnorm "bn" { rows = 3 }, %0')
    local programs, p = build(t, "library_batchnorm", bn)
    drive(t, programs, p, "short", { bare = true })
    same(t, drive(t, programs, p, "resumed"), trained(programs, p))
end)

add("a non-finite gradient ends cycle() as it ends step()", function(t)
    local programs, p = usual(t)
    drive(t, programs, p, "lost", { bare = true })
end)

-- Output and its gradient pass as f32 numbers. A gradient near a rounding tie may be rounded the other way, which
-- changes a parameter by about that part of a step.
add("in 16 bits: a user's rows equal train, bit for bit; from the gradient of the output up to rounding", function(t)
    local programs, p = build(t, "library_bf16", spec() .. 'precision "bf16"\n')
    same(t, drive(t, programs, p, "own"), trained(programs, p))
    local name = ("/cycle-%09d/model.safetensors"):format(CYCLES)
    local worst, where = programs.difference(drive(t, programs, p, "grad") .. name, trained(programs, p) .. name)
    assert(worst < 2.0 ^ -8, ("%s differs by %g"):format(where, worst))
end)

add("misuse is reported and does no harm", function(t)
    local programs, p = usual(t)
    drive(t, programs, p, "misuse", { bare = true })
end)

add("a pointer that is NULL and may not be is reported", function(t)
    local programs, p = build(t, "library", spec(), { level = "-O1", driver = "tests/e2e/nothing.c" })
    drive(t, programs, p, "", { bare = true })
end)

add("calls by a gradient handler, and cycle inside of a cycle of next, are refused", function(t)
    local programs, p = build(t, "library", spec(), { level = "-O1", driver = "tests/e2e/library_moments.c" })
    drive(t, programs, p, "", { bare = true })
end)

add("a gradient handler is called at boundaries", function(t)
    local programs, p = usual(t)
    drive(t, programs, p, "handler", { bare = true })
end)

local SCALER = "scaler { initial_scale = 1024, growth_interval = 2, hysteresis = 1 }\n"

add("with a scaler: the loop equals train; handler and counters get unscaled values", function(t)
    local programs, p = build(t, "library_scaler", spec() .. SCALER)
    local expected = trained(programs, p)
    same(t, drive(t, programs, p, "own"), expected)
    same(t, drive(t, programs, p, "resumed"), expected)
    local _, plain = usual(t)
    same(t, expected, trained(programs, plain))
    local name = ("/cycle-%09d/model.safetensors"):format(CYCLES)
    local worst = programs.difference(drive(t, programs, p, "grad") .. name, expected .. name)
    assert(worst > 0 and worst < 1e-5, worst)
    drive(t, programs, p, "handler", { bare = true })
    drive(t, programs, p, "scaled", { bare = true })
    local _, still = build(t, "library_static", spec() .. "scaler { static = 256 }\n")
    same(t, drive(t, programs, still, "resumed"), expected)
    t.equal(programs.difference(drive(t, programs, still, "grad") .. name, expected .. name) < 1e-5, true)
end)

add("parameters are read and written", function(t)
    local programs, p = usual(t)
    drive(t, programs, p, "dict", { bare = true })
end)

add("an evaluation between micro-steps changes nothing", function(t)
    local programs, p = usual(t)
    drive(t, programs, p, "measure", { bare = true })
end)

add("with averages: evaluations use them, as in the program", function(t)
    local text = spec():gsub("lr = 1e%-2", "%0, ema = 0.6")
    local programs, p = build(t, "library_averages", text)
    local folder, out = drive(t, programs, p, "averages")
    same(t, folder, trained(programs, p))
    local evaluation = programs.events(p, { "--eval", "--resume", "latest", "--checkpoint", folder })
    local loss
    for _, event in ipairs(evaluation) do loss = event.event == "eval" and event.loss or loss end
    t.near(tonumber(out:match "loss (%S+)"), loss, 1e-6)
    drive(t, programs, p, "dict", { bare = true })
    same(t, drive(t, programs, p, "resumed"), folder)
end)

add("two ranks: the loop equals train; collectives run only at the boundary", function(t)
    local text = spec(', tail = "flush"', true) .. 'parallel "ddp"\n'
    local programs, p = build(t, "library_mpi", text, { comm = "mpi" })
    local expected = trained(programs, p, { ranks = 2, cycles = 6, "--threads", 1 })
    same(t, drive(t, programs, p, "next", { ranks = 2, cycles = 6 }), expected, 6)
    drive(t, programs, p, "ranks", { ranks = 2, bare = true })
end)

-- Exchanges take at least 40 ms, so that sums are still on their way where the loop goes on.
local LATE = "tests/e2e/late_mpi.c"

-- A program whose gradients are summed in several buckets, and the driver of two ranks.
local function divided(t, mode)
    local text = spec(', tail = "flush"') .. ('parallel { %q%s }\n'):format(mode, mode ~= "zero3" and ', bucket = "64B"'
        or "")
    return build(t, "library_" .. mode, text, { comm = "mpi", sources = { LATE } })
end

for _, mode in ipairs { "zero1", "zero2", "zero3" } do
    add("two ranks: " .. mode .. ": loops with flush, discard and saves inside a cycle equal train", function(t)
        local programs, p = divided(t, mode)
        for _, case in ipairs { { "next", 6 }, { "dropped", 3 }, { "loaded", 3 } } do
            local what, cycles = table.unpack(case)
            local expected = trained(programs, p, { ranks = 2, cycles = cycles, "--threads", 1 })
            same(t, drive(t, programs, p, what, { ranks = 2, cycles = cycles }), expected, cycles)
        end
    end)
end

add("two ranks: a gradient handler has whole gradients, with zero1 too; with zero2 it is refused", function(t)
    local programs, p = divided(t, "zero1")
    drive(t, programs, p, "handler", { ranks = 2, bare = true })
    local _, divided_gradients = divided(t, "zero2")
    drive(t, programs, divided_gradients, "whole", { ranks = 2, bare = true })
end)

add("the example that comes with a program builds and runs", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path, folder = programs.folder() .. "/library_whole.lua", t.temp() .. "/out"
    t.write(path, spec())
    t.equal(programs.gagen({ path, "-o", folder }).status, 0)
    local made = t.run { "make", "-s", "-C", folder, "example", "CFLAGS=-O0 -Werror" }
    t.equal(made.status, 0, made.err)
    local result = t.run { folder .. "/example", "3", env = { "GAGEN_DATA=" .. t.root .. "/"
        .. programs.folder() .. "/data" } }
    t.equal(result.status, 0, result.err)
    t.match(result.out, "^cycle 1 loss [%d.]+ lr 0.01 gnorm [%d.]+\ncycle 2 .*\ncycle 3 [^\n]*\n$")
end)

add("a program for a device refuses to build a library", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path, folder = programs.folder() .. "/library_cuda.lua", t.temp() .. "/out"
    t.write(path, spec() .. 'target "cuda"\n')
    t.equal(programs.gagen({ path, "-o", folder }).status, 0)
    local result = t.run { "make", "-s", "-C", folder, "lib" }
    t.equal(result.status ~= 0, true)
    t.contains(result.out, "looped is a program for the CUDA target, which has no library")
    t.equal(host.read(folder .. "/Makefile"):find("# make lib", 1, true), nil)
end)

return tests
