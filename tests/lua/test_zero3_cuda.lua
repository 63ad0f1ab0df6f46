-- Parameters divided over the ranks on the CUDA target: programs on the device library (tests/device), with its checks
-- and in a shuffled order, end with the numbers of the C target. They make the same gathers and reductions in the same
-- order, those of training inside the captured graph.
local cover = dofile "tests/lua/cover.lua"
local devices = dofile "tests/lua/devices.lua"
local ranked = dofile "tests/lua/ranked.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local needs = devices.needs_gpus

local events_of = devices.events_of

-- A run of `ranks` processes of a program of the CUDA target: options as programs.train has them.
local function on_devices(t, ranks, options)
    options.before = { t.root .. "/tests/device/ranks", tostring(ranks) }
    return options
end

-- === a cover of cases ============================================================================

-- Each dimension and its values.
local DIMENSIONS = {
    { "prefetch", 1, 0, 3 },
    { "ranks", 2, 3, 1 },
    { "model", "mlp", "gpt", "batchnorm", "resnet", "llama", "bert" },
    { "a", 3, 1, 2 },
    { "memory", "", 'memory { recompute = { "*" } }', 'memory { logits = "chunked", logits_rows = 8 }' },
    { "clip", "", "clip (0.1)", "clip { value = 0.01 }" },
    { "precision", "f64", "f32", "bf16" },
    { "optimizer", "adamw", "ema", "lamb", "adafactor", "frozen" },
    { "overlap", true, false },
    { "stored", "true", '"owner"' },
    { "chunks", "", "chunk_size = 100000", "chunk_size = 150", "chunk_size = 800" },
}

local function fits(case) return not case.memory:find "logits" or ranked.MODELS[case.model].rows == "tokens" end

-- How far results may be from those of the C target, whose kernels have other orders of sums: in f64 relative to the
-- largest of each tensor, else in its 2-norm.
local BOUNDS = { f64 = 1e-12, f32 = 1e-5, bf16 = 4e-3, f16 = 4e-3 }

-- An update that divides by sqrt(v) makes of an element of a gradient that is nearly 0 its sign. So in 16 bits parameters
-- and states are at most so many times as far apart as gradients.
local UPDATED = 16

local MULTIPLE = 16     -- cuts are at multiples of so many elements

-- The calls of NCCL that an exchange of the C target is on a device, as "kind elements": the equal part of all ranks,
-- of which each has a piece, then what the last one has more.
local function calls_of(kind, n, ranks)
    local each = n // (ranks * MULTIPLE) * MULTIPLE
    local rest = (kind == "all-gather" and "broadcast " or "reduce ") .. n - ranks * each
    if each == 0 then return { rest } end
    return { ("%s %d"):format(kind, each), n > ranks * each and rest or nil }
end

-- Sorts calls { how, or the number of an exchange; "kind elements" } within each run of sums, and of gathers:
-- buckets that are complete together may be sent in either order.
local function in_runs(calls)
    local from = 1
    local function is_sum(k) return calls[k][2]:find "^reduce" ~= nil end
    while from <= #calls do
        local run, to = {}, from
        while to <= #calls and is_sum(to) == is_sum(from) do run[#run + 1], to = calls[to], to + 1 end
        table.sort(run, function(a, b) return a[2] < b[2] end)
        table.move(run, 1, #run, from, calls)
        from = to
    end
    return calls
end

-- The files that order_mpi.c and the device library write must have the same exchanges in the same order. Returns how
-- many of them are in graphs of the device. Its first ones connect the ranks, up to the first small sum.
local function in_graphs(t, c, cuda, ranks)
    local made, wanted, starts, graph, seen = {}, {}, true, 0, {}
    for how, kind, n in host.read(cuda):gmatch "(%w+) ([%w-]+) (%d+)\n" do
        if not starts and kind ~= "all-reduce" then made[#made + 1] = { how, kind .. " " .. n } end
        starts = starts and kind ~= "all-reduce"
    end
    local exchange = 0
    for kind, n in host.read(c):gmatch "([%w-]+) (%d+)\n" do
        exchange = exchange + 1
        for _, call in ipairs(calls_of(kind, tonumber(n), ranks)) do wanted[#wanted + 1] = { exchange, call } end
    end
    made, wanted = in_runs(made), in_runs(wanted)
    for at, call in ipairs(wanted) do
        local found = made[at] or {}
        if found[2] ~= call[2] then error(("call %d is %s, expected %s"):format(at, found[2], call[2]), 0) end
        graph = graph + (found[1] == "graph" and not seen[call[1]] and 1 or 0)
        seen[call[1]] = true
    end
    t.equal(#made, #wanted)
    return graph
end

-- The order is compared where buckets are cut equally: a rank that owns whole tensors, or chunks, sends them by itself.
-- Sums of batchnorm are two exchanges on the C target, which also gathers weights of 16 bits as they are.
local EQUAL = { adamw = true, ema = true, frozen = true }
local EXACT = { f64 = true, f32 = true }
local function is_compared(case)
    return EQUAL[case.optimizer] and EXACT[case.precision] and case.stored == "true" and case.ranks > 1
        and case.model ~= "batchnorm" and case.model ~= "resnet"
end

local function compare(t, case, settings)
    needs(t, case.ranks)
    local programs, environment = devices.open(t)
    ranked.write_tokens(t, programs)
    case.tail, case.weight = "flush", "sample"
    case.eval, case.split = "eval { every = 1, batches = 2 }", "split = { eval = 24 }"
    local mode = ("parallel { \"zero3\", prefetch = %d, overlap = %s, enable_distributed_storage = %s%s }"):format(
        case.prefetch, case.overlap, case.stored, case.chunks ~= "" and ", " .. case.chunks or "")
    local text, cycles = ranked.spec(case, 3, case.a, mode), case.precision == "f64" and 3 or 1
    local name = "zero3_cuda_" .. host.sha256(text):sub(1, 12)
    local p = programs.build(name, text .. 'target "cuda"\n')
    local oracle = programs.build(name .. "_c", text, { comm = "mpi", sources = { "tests/e2e/order_mpi.c" } })
    local folder = t.temp()
    local order = { c = folder .. "/order_c", cuda = folder .. "/order_cuda" }
    local log = { c = folder .. "/log_c", cuda = folder .. "/log_cuda" }
    local expected = programs.dump(oracle, { ranks = case.ranks, "--threads", 1, "--cycles", cycles, "--log", log.c,
        env = { "GAGEN_TIMEOUT=300", "EXCHANGES=" .. order.c } })
    local env = environment(settings)
    env[#env + 1] = "GAGEN_DEVICE_COLLECTIVES=" .. order.cuda
    local found = programs.dump(p, on_devices(t, case.ranks, { "--cycles", cycles, "--log", log.cuda, env = env }))

    local bound = BOUNDS[case.precision]
    local measure = case.precision == "f64" and programs.difference or programs.distance
    programs.close(found, expected, bound, { "gradients" }, measure)
    programs.close(found, expected, EXACT[case.precision] and bound or UPDATED * bound, { "parameters", "state" },
        measure)
    local plan, calls = programs.plan(p, "--ranks", tostring(case.ranks)), 0
    for _, c in ipairs(plan.collectives) do calls = calls + c.calls end
    local updates = { events_of(log.cuda, "update"), events_of(log.c, "update") }
    for i, event in ipairs(updates[1]) do
        t.equal({ event.collectives, event.comm_bytes }, { calls, plan.totals.comm_bytes_per_cycle })
        t.near(event.loss, updates[2][i].loss, bound * event.loss)
    end
    local evals = { events_of(log.cuda, "eval"), events_of(log.c, "eval") }
    t.equal({ #updates[1], #evals[1] }, { cycles, #evals[2] })
    for i, event in ipairs(evals[1]) do t.near(event.loss, evals[2][i].loss, bound * event.loss) end
    if not is_compared(case) or devices.gpus(t) > 0 then return end
    local training = 0
    for _, c in ipairs(plan.collectives) do training = training + (c.kind ~= "small" and c.calls or 0) end
    t.equal(in_graphs(t, order.c, order.cuda, case.ranks), cycles * training)
end

-- With make test-all the cover of the pairs.
local CASES = cover.cases(DIMENSIONS, fits, host.environment "GAGEN_TEST_ALL" and 2 or 1, 10)
CASES[#CASES + 1] = { prefetch = 1, ranks = 3, model = "gpt", a = 3, memory = "", clip = "clip (0.1)",
    precision = "f64", optimizer = "adamw", overlap = true, stored = "true", chunks = "" }

for i, case in ipairs(CASES) do
    add("equal to the C target: " .. cover.name(DIMENSIONS, case), function(t)
        compare(t, case, i % 2 == 0 and devices.checked(1) or devices.light(t, 1))
    end)
end

-- === updates that are skipped, graphs that are divided, files =====================================

add("f16: a cycle whose gradient overflows is skipped and changes nothing, as on the C target", function(t)
    needs(t, 2)
    local programs, environment = devices.open(t)
    ranked.write_overflowing(t, programs)
    local text = ranked.OVERFLOWING:format 'parallel "zero3"'
    local built = { c = programs.build("zero3_cuda_overflow_c", text, { comm = "mpi" }),
        cuda = programs.build("zero3_cuda_overflow", text .. 'target "cuda"\n') }
    local function trained(target, cycles)
        local o = { "--cycles", cycles, "--log", t.temp() .. "/log" }
        if target == "c" then
            o.ranks = 2
        else
            on_devices(t, 2, o).env = environment(devices.checked(1))
        end
        local dump, list = programs.dump(built[target], o), {}
        for i, event in ipairs(events_of(o[4], "update")) do list[i] = { event.update, event.skipped, event.scale } end
        return dump, list
    end
    local one, two = trained("cuda", 1), trained("cuda", 2)
    programs.identical(two, one, { "parameters", "state" })
    local expected, known = trained("c", 4)
    local found, list = trained("cuda", 4)
    t.equal(list, known)
    t.equal(list[2][2], 1)
    programs.close(found, expected, BOUNDS.f16, { "parameters", "state" }, programs.distance)
end)

-- Micro-steps that are graphs of their own: two ranks end as one process of twice the micro-steps. Returns the program,
-- the events of its updates and that of its device.
local function by_micro_steps(t, name, text, a, cycles)
    needs(t, 2)
    local programs, environment = devices.open(t)
    local p = programs.build(name, text:format(a) .. 'parallel { "zero3", prefetch = 1 }\ntarget "cuda"\n')
    local expected = programs.dump(programs.build(name .. "_1", text:format(2 * a)), { "--cycles", cycles })
    local log = t.temp() .. "/log"
    local found = programs.dump(p, on_devices(t, 2, { "--cycles", cycles, "--log", log, env = environment() }))
    programs.close(found, expected, 1e-12, { "parameters", "gradients", "state" })
    return programs.plan(p), events_of(log, "update"), events_of(log, "device")[1]
end

add("a shorter last cycle is its micro-steps, one graph behind the other, each with its gathers", function(t)
    local plan, updates, device = by_micro_steps(t, "zero3_cuda_tail", [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (5)
accumulate { %d, tail = "flush" }
model      { linear "fc1" { 6 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { epochs = 2, seed = 7 }
precision  "f64"
]], 3, 4)
    t.equal(device.graph_launches, 3 + 1)
    t.equal(updates[1].comm_bytes, plan.totals.comm_bytes_per_cycle)
end)

add("a cycle of more than 20,000 nodes is launched as graphs of micro-steps", function(t)
    t.long()
    local plan, updates, device = by_micro_steps(t, "zero3_cuda_nodes", [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (1)
accumulate (%d)
model      { linear "in" { 4 }, times(100) "h" { residual { linear "fc" { 4 }, tanh {} } }, linear "out" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 2, seed = 1 }
precision  "f64"
]], 50, 1)
    t.equal({ plan.graph.of, device.graph_launches }, { "micro-step", 50 })
    t.equal(updates[1].comm_bytes, plan.totals.comm_bytes_per_cycle)
end)

-- A frozen table with padding and a layer with running statistics lie beside the trained parameters.
local FILES = [[
data       { "tokens", train = "parallel.bin", context = 6 }
batch      (3)
model      { embedding "wte" { 11, 12, padding = 3 }, linear "a" { 13 }, tanh {}, linear "b" { 11 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, ema = 0.9, groups = { { "wte.*", frozen = true } } }
train      { updates = 3, seed = 7 }
parallel   "%s"
]]

add("first values are those of one process, files have them, and memory is that of the plan", function(t)
    needs(t, 3)
    local programs, environment = devices.open(t)
    ranked.write_tokens(t, programs)
    local one = programs.build("zero3_cuda_files_1", FILES:format "none")
    local many = programs.build("zero3_cuda_files", FILES:format "zero3" .. 'target "cuda"\n')
    local function on_three(...) return on_devices(t, 3, { env = environment(), ... }) end
    local first, again, last, log = t.temp() .. "/first", t.temp() .. "/again", t.temp() .. "/last", t.temp() .. "/log"
    programs.train(one, { "--save-init", first })
    programs.train(many, on_three("--save-init", again))
    assert(host.read(first) == host.read(again), "first values have other bytes")
    local dump = programs.dump(many, on_three("--log", log))
    local parameters = dump .. "/parameters.safetensors"
    programs.train(many, on_three("--save-init", last, "--init", parameters))
    assert(host.read(last) == host.read(parameters), "--init: other bytes")
    local planned = 0
    for _, arena in ipairs(programs.plan(many, "--ranks", "3").arenas) do
        planned = planned + (arena.memory == "device" and arena.bytes or 0)
    end
    t.equal(events_of(log, "device")[1].device_bytes, planned)
end)

-- === planted errors ==============================================================================

local PLANTED = ranked.GATHERED .. 'parallel   "%s"\ntarget     "cuda"\n'

-- The end of a run of the program: the losses of its updates and evaluations, and its messages.
local function run_planted(t, mode, file, from, to)
    local programs, environment = devices.open(t)
    ranked.write_tokens(t, programs)
    local p = programs.build("zero3_cuda_planted_" .. mode, PLANTED:format(mode))
    if file then
        local text = host.read(p.folder .. "/" .. file)
        local first, last = text:find(from, 1, true)
        assert(first and not text:find(from, last + 1, true), file .. ": not once there: " .. from)
        programs.edit(p, file, text:sub(1, first - 1) .. to .. text:sub(last + 1))
    end
    local log, list = t.temp() .. "/log", {}
    local env = environment(devices.checked(1))
    env[#env + 1] = "GAGEN_DEVICE_TIMEOUT=5"
    local result = programs.train(p, on_devices(t, 2, { "--log", log, status = false, env = env }))
    for _, kind in ipairs { "update", "eval" } do
        for _, event in ipairs(result.status == 0 and events_of(log, kind) or {}) do list[#list + 1] = event.loss end
    end
    return list, result.err
end

local RACE, LOSSES = "device: race", "other losses"
local ORDER = "order(q, m->forked, q->stream, m->reducing);\n    if (q->code == 0) q->code = ga_nccl_gather"

-- { the error, the file, a text of it, another one, how it is found }
local ERRORS = {
    { "a kernel that does not wait for its gather", "step.c",
        "q->code = ga_device_wait(q->device, q->stream, m->gathered[pass->chunks[k]], q->e);", "q->code = 0;", RACE },
    { "a gather that does not wait for the last reader of its window", "step.c", ORDER, "if (i == 0) " .. ORDER, RACE },
    { "gathers that run further ahead than there are windows", "step.c", "PREFETCH = 1", "PREFETCH = 2", RACE },
    { "a missing gather in an evaluation", "step.c", "    chunk_need(q, m, &EVALUATION_CHUNKS, 0);\n", "", LOSSES },
    { "a missing gather in the backward pass", "step.c",
        "chunk_need(q, m, &BACKWARD_CHUNKS, 1 + H_LAYERS - 1 - l);", ";", LOSSES },
    { "the window of another layer", "model.h", "return l % 2 * (int64_t)H_PARAMS;", "return (l + 1) % 2 * "
        .. "(int64_t)H_PARAMS;", RACE },
    { "another rank's part", "step.c", "m->device_w + sizeof(real) * (size_t)ga_division_place(&m->division, i);",
        "m->device_w;", LOSSES },
}

add("no error is planted: the losses of zero2", function(t)
    needs(t, 2)
    local found = run_planted(t, "zero3")
    t.equal(#found, 3 + 3)
    t.equal(found, run_planted(t, "zero2"))
end)

for _, planted in ipairs(ERRORS) do
    local name, file, from, to, how = table.unpack(planted)
    add("planted: " .. name .. ": found", function(t)
        devices.needs_library(t)
        local expected = run_planted(t, "zero2")
        local found, err = run_planted(t, "zero3", file, from, to)
        if how == RACE then return t.contains(err, RACE) end
        local same = #found == #expected
        for i, loss in ipairs(expected) do same = same and loss == found[i] end
        assert(not same, "nobody noticed it")
    end)
end

return tests
