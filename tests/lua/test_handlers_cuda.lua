-- Gradient handlers over groups of ranks on the CUDA target: four ranks on the device library (tests/device), each handler
-- against its formula and against the dumps of the C target; files that both targets read; a communicator for each list.
local devices = dofile "tests/lua/devices.lua"
local handled = dofile "tests/lua/handled.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local RANKS, A = 4, 3

-- Every preset, both ops, a list that not all ranks are in, and a group in which each rank is alone.
local GROUPS = [[ep = { { 0, 1 }, { 2, 3 } }, ends = { { 0, 3 } }, seq = { { 0, 2 }, { 1, 3 } }, three = { { 3, 1, 0 } },
    own = { { 0 }, { 1 }, { 2 }, { 3 } }]]
local HANDLERS = [[{ "moe", params = "*.experts.up.weight", group = "ep" }, { "moe", params = "*.experts.up.bias", group = "own" },
    { "pipeline_shared", params = "tied.weight", group = "ends" },
    { params = "h.*.mix.bias", group = "three", op = "sum" }, { params = "head.weight", group = "three", op = "mean" },
    { "sequence_parallel", params = "head.*", group = "seq" }, { "data_parallel" }]]

local THREE = { { 0, 1, 3 } }
local REDUCTION = handled.first_of {
    { "experts.up.weight", { { 0, 1 }, { 2, 3 } } }, { "experts.up.bias", {} }, { "^tied", { { 0, 3 } }, "sum" },
    { "mix.bias", THREE, "sum" }, { "head.weight", THREE }, { "^head", { { 0, 2 }, { 1, 3 } } },
}

-- A program of both targets; o: { name, parallel, optimizer, more }.
local function built(t, programs, o, file)
    local text = handled.spec { file = file, a = A, parallel = o.parallel or handled.parallel(GROUPS, HANDLERS),
        optimizer = o.optimizer, more = o.more }
    return { c = programs.build(o.name .. "_c", text, { comm = "mpi" }),
        cuda = programs.build(o.name .. "_cuda", text .. '\ntarget "cuda"\n') }
end

-- Options of a run of four ranks of a target; settings: of the device library.
local function on(t, target, environment, settings, ...)
    local o = { ... }
    if target == "c" then
        o.ranks = RANKS
        table.move({ "--threads", 1 }, 1, 2, #o + 1, o)
    else
        o.before, o.env = { t.root .. "/tests/device/ranks", tostring(RANKS) }, environment(settings)
    end
    return o
end

-- The files of each rank's own values.
local function own_files(...)
    local list = {}
    for _, what in ipairs { ... } do
        for rank = 1, RANKS do list[#list + 1] = ("%s-%dof%d"):format(what, rank, RANKS) end
    end
    return list
end

-- How often each line stands in a file of collectives (GAGEN_DEVICE_COLLECTIVES).
local function collectives(file)
    local count = { graph = 0, alone = 0 }
    for how in host.read(file):gmatch "(%w+) [%w-]+ %d+\n" do count[how] = count[how] + 1 end
    return count
end

local function opened(t)
    if devices.gpus(t) > 0 and devices.gpus(t) < RANKS then
        t.not_run(("%d GPU, %d are needed"):format(devices.gpus(t), RANKS))
    end
    return devices.open(t)
end

add("each handler: its formula, the dumps of the C target, the norm of the distinct copies, calls of the plan", function(t)
    local programs, environment = opened(t)
    local file = handled.write_rows(t, programs, A)
    local p = built(t, programs, { name = "handlers_all" }, file)
    local truth = handled.micro_batches(t, programs, file, A)
    local made, log = t.temp() .. "/collectives", t.temp() .. "/log"
    local settings = devices.checked(1)
    settings[#settings + 1] = "GAGEN_DEVICE_COLLECTIVES=" .. made
    local dump = programs.dump(p.cuda, on(t, "cuda", environment, settings, "--cycles", 1, "--log", log))
    handled.check(programs, { dump = dump, truth = truth, a = A, reduction = REDUCTION })
    local event, plan = handled.last_update(log), programs.plan(p.cuda)
    handled.near(event.grad_norm, math.sqrt(handled.squares(truth, A, REDUCTION)), "grad_norm")
    t.equal({ event.collectives, event.comm_bytes }, { handled.calls_of(plan), plan.totals.comm_bytes_per_cycle })
    local function bytes(rank)
        return programs.tensors(("%s/gradients-%dof4.safetensors"):format(dump, rank))["h.0.experts.up.weight"].bytes
    end
    t.equal({ bytes(1) == bytes(2), bytes(3) == bytes(4), bytes(1) == bytes(3) }, { true, true, false })
    local known = programs.dump(p.c, on(t, "c", nil, nil, "--cycles", 1))
    programs.close(dump, known, 1e-12, own_files("parameters", "gradients"))
    if devices.gpus(t) > 0 then return end
    -- without ncclCommSplit (before NCCL 2.18) the first rank of a list sends an identifier: the same bits
    programs.identical(programs.dump(p.cuda, on(t, "cuda", environment, { "GAGEN_DEVICE_NCCL=21000" }, "--cycles", 1)),
        dump, own_files("parameters", "gradients"))
    -- all exchanges of a cycle stand in its graph: all-reduces of buckets and two small sums, that of norms among them
    t.equal(collectives(made).graph, handled.calls_of(plan))
end)

add("nothing is exchanged off the boundary", function(t)
    devices.needs_library(t)
    local programs, environment = opened(t)
    local p = built(t, programs, { name = "handlers_all" }, handled.write_rows(t, programs, A)).cuda
    local made = t.temp() .. "/collectives"
    local o = on(t, "cuda", environment, { "GAGEN_DEVICE_COLLECTIVES=" .. made }, "--stop-micro", A - 1)
    o.status = 75
    programs.train(p, o)
    t.equal(collectives(made).graph, 0)
    local starts = 0
    for line in host.read(p.folder .. "/step.c"):gmatch "[^\n]*bucket_start%(q, m[^\n]*" do
        starts = starts + 1
        t.match(line, "reduces")
    end
    assert(starts >= 7, starts .. " starts")
end)

local MORE = { name = "handlers_more", optimizer = 'optimizer { "adamw", lr = 1e-2, weight_decay = 0.05, ema = 0.9 }',
    more = "clip { 0.05, value = 0.02 }",
    parallel = handled.parallel(GROUPS, HANDLERS .. ", function(g, w) return g + 0.1 * w end, function(g, w) return 2 * g end",
        ', bucket = "1KiB", overlap = false') }

add("functions of g and w, clips, averages: the C target's values, and its files both ways", function(t)
    local programs, environment = opened(t)
    local p = built(t, programs, MORE, handled.write_rows(t, programs, 2 * A))
    local files = own_files("parameters", "state")
    local function trained(target, ...)
        return programs.dump(p[target], on(t, target, environment, nil, "--cycles", 4, ...))
    end
    local whole = { c = trained "c", cuda = trained "cuda" }
    programs.close(whole.cuda, whole.c, 1e-11, files)
    for from, to in next, { c = "cuda", cuda = "c" } do
        local folder = t.temp()
        local o = on(t, from, environment, nil, "--stop-micro", 2 * A + 1, "--checkpoint", folder)
        o.status = 75
        programs.train(p[from], o)
        local saved = folder .. "/cycle-000000002-r1"
        t.equal(host.exists(saved .. "/group-ep-1.safetensors"), "file")
        programs.close(trained(to, "--resume", saved), whole.c, 1e-11, files)
        programs.identical(trained(from, "--resume", saved), whole[from], files)
    end
end)

add("a checkpoint of other groups is refused", function(t)
    local programs, environment = opened(t)
    local file = handled.write_rows(t, programs, A)
    local p = built(t, programs, { name = "handlers_all" }, file)
    local crossed = built(t, programs, { name = "handlers_crossed", parallel = handled.parallel(
        (GROUPS:gsub("{ { 0, 1 }, { 2, 3 } }", "{ { 0, 2 }, { 1, 3 } }")), HANDLERS) }, file)
    local folder = programs.train(crossed.c, on(t, "c", nil, nil, "--cycles", 1)).checkpoint
    local o = on(t, "cuda", environment, nil, "--cycles", 2, "--resume", folder .. "/cycle-000000001")
    o.status = 1
    t.contains(programs.train(p.cuda, o).err, "is of the ranks 0 2, and here of 0 1: written with other groups of ranks")
end)

return tests
