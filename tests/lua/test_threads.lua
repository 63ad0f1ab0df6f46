-- The number of threads follows from the planned work, the affinity mask and the quota of the control group.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- About 42 million operations in a micro-step.
local SPEC = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch      (128)
accumulate (2)
model      { linear "fc1" { 1024 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 1 }
target     { "c", march = "x86-64-v3" }
]]

local function program(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    return programs, programs.build("threads_auto", SPEC, { sources = { "tests/e2e/masks.c" },
        ldflags = "-Wl,--wrap=sched_getaffinity,--wrap=open" })
end

-- By hand: 6e10 operations and 1.2e10 bytes in a second on a core of x86-64-v3, a thread for each 200 microseconds of
-- the micro-step's two products forward and three backward, and of what is between them.
local function expected(kernels)
    local us = 0
    for _, kernel in ipairs(kernels) do
        if kernel.role ~= "boundary" and kernel.role ~= "evaluation" and kernel.role ~= "views" then
            us = us + kernel.calls / 2 * math.max(kernel.flops / 6e4, kernel.bytes / 1.2e4)
        end
    end
    return us // 200
end

add("the plan says how many the work keeps busy, and the program has that number", function(t)
    local programs, p = program(t)
    local plan = programs.plan(p)
    local products = 2 * 128 * (2 * 64 * 1024 + 3 * 1024 * 10) / 6e4
    assert(plan.busy.micro_us > products and plan.busy.micro_us < 2 * products, plan.busy.micro_us)
    t.equal(plan.threads, "auto")
    t.near(plan.busy.threads, expected(plan.kernels), 0)
    assert(plan.busy.threads >= 3)
    t.match(host.read(p.folder .. "/model.c"), ("\nenum { BUSY_THREADS = %d };\n"):format(plan.busy.threads))
    t.match(programs.gagen({ "plan", p.spec }).out,
        ("\nthreads +%d, or as many as there are usable cores: a micro%%-step is "):format(plan.busy.threads))
    t.match(programs.gagen({ "plan", p.spec, "--threads", "6" }).out, "\nthreads +6, as target.threads or ")
    t.match(programs.gagen({ "plan", "specs/digits_mlp.lua" }).out, "\nthreads +1: a micro%-step is ")
    t.equal(programs.gagen({ "plan", "specs/digits_mlp.lua", "--target", "cuda" }).out:find "\nthreads ", nil)
end)

add("the least of work, mask and quota; --threads wins", function(t)
    local programs, p = program(t)
    local busy = programs.plan(p).busy.threads
    local function chosen(env, ...)
        local event = programs.events(p, { env = env, ... })[1]
        return { event.threads, event.threads_why }
    end
    local machine = t.temp()
    t.write(machine .. "/proc/self/cgroup", "0::/job\n")
    t.write(machine .. "/sys/fs/cgroup/job/cpu.max", "max 100000\n")
    local wide, all = "MASKS=0:64", "MACHINE=" .. machine
    t.equal(chosen { wide, all }, { busy, "work" })
    t.equal(chosen { "MASKS=3:2", all }, { 2, "cores" })
    t.write(machine .. "/sys/fs/cgroup/job/cpu.max", "150000 100000\n")
    t.equal(chosen { wide, all }, { 2, "cores" })
    t.equal(chosen { "MASKS=3:1", all }, { 1, "cores" })
    t.equal(chosen({ wide, all }, "--threads", 5), { 5, "--threads" })
end)

add("a number in the spec is taken as it is", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("threads_given", (SPEC:gsub('"x86%-64%-v3"', "%0, threads = 3")))
    local event = programs.events(p, {})[1]
    t.equal({ event.threads, event.threads_why }, { 3, "target.threads" })
    t.fails(function() programs.build("threads_wrong", (SPEC:gsub('"x86%-64%-v3"', '%0, threads = "many"'))) end,
        "target: threads is 'many', expected an integer 1%.%.1024 or \"auto\"")
end)

return tests
