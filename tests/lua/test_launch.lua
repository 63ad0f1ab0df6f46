-- Programs on several ranks: threads of each, `gagen run -n`, requests to stop, failed ranks, run.sh and job.sbatch.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (3)
accumulate (4)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
checkpoint { every = 200 }
train      { updates = 100, seed = 3 }
parallel   "ddp"
]]

-- The program of SPEC, as `gagen run -n 2` makes it.
local function build(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    return programs, programs.build("launch", SPEC, { comm = "mpi", options = { "--ranks", "2" } })
end

-- The number of threads that a run logs.
local function threads(programs, p, o)
    table.move({ "--cycles", 1 }, 1, 2, #o + 1, o)
    return programs.events(p, o)[1].threads
end

add("a rank takes its part of the cores that it may use", function(t)
    local programs, p = build(t)
    local cores = tonumber(t.run { "nproc", env = { "OMP_NUM_THREADS" } }.out)
    t.equal(threads(programs, p, {}), cores)
    t.equal(threads(programs, p, { before = { "taskset", "-c", "0" } }), 1)
    t.equal(threads(programs, p, { ranks = 2 }), math.max(cores // 2, 1))
    t.equal(threads(programs, p, { ranks = 2, "--threads", 3 }), 3)
end)

return tests
