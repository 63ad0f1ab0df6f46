-- Schedules against figures of torch, Colossal-AI and Hugging Face (tests/reference/schedules.py): the expressions to
-- 1e-12, the program's rates, the output of `gagen lr`; the schedule that depends on evaluations; epochs; functions;
-- refusals. Invariant: no Python runs here.
local tests = {}
local function add(name, f)
    tests[#tests + 1] = { name, function(t) f(t, t.load("tests/numeric/numeric.lua")(t)) end }
end

local figures = dofile "tests/reference/schedules/figures.lua"

local function sgd(base) return ('{ "sgd", lr = %g, momentum = 0.9 }'):format(base) end

-- A spec in a folder of its own: 64 rows, 5 cycles an epoch.
local function write_spec(t, numeric, case)
    local folder = t.temp()
    t.write(folder .. "/data/rows.csv", ("1,2,3,4,0\n"):rep(64))
    case.model = ' { linear "a" { 3 } }'
    t.write(folder .. "/probe.lua", numeric.spec(case))
    return folder .. "/probe.lua"
end

local function near(t, found, wanted, what)
    t.equal(#found, #wanted, what)
    for i, x in ipairs(wanted) do
        if not (math.abs(found[i] - x) <= 1e-12 * math.max(math.abs(x), 1e-3)) then
            error(("%s: value %d is %.17g, %.17g expected"):format(what, i, found[i], x), 0)
        end
    end
end

add("every schedule is torch's, Colossal-AI's or Hugging Face's to 1e-12", function(t, numeric)
    local expr, schedule, load_spec = require "base.expr", require "spec.schedule", require "spec.load"
    for _, run in ipairs(figures.runs) do
        local path = write_spec(t, numeric, { schedule = run.spec, updates = run.updates, optimizer = sgd(run.base) })
        local _, c = load_spec.load(path, {}, {})
        local rate, momentum = schedule.expressions(c)
        local rates, momenta = {}, {}
        for u = 0, run.updates - 1 do
            local env = { t = schedule.time(c, u), total = c.schedule.total }
            rates[u + 1] = expr.evaluate(rate, env)
            momenta[u + 1] = momentum and expr.evaluate(momentum, env)
        end
        near(t, rates, run.rates, run.spec)
        if run.momenta then near(t, momenta, run.momenta, run.spec .. ": momentum") end
        if momentum and not run.momenta then t.equal(run.updates, 1, run.spec .. " moves no momentum there") end
    end
end)

add("emitted rates have short lines", function(t, numeric)
    for _, run in ipairs(figures.runs) do
        local path = write_spec(t, numeric, { schedule = run.spec, updates = run.updates, optimizer = sgd(run.base) })
        local _, c = require "spec.load".load(path, {}, {})
        for _, name in ipairs { "c", "cuda" } do
            local target = require "emit.targets.targets".get(name)
            for line in require "emit.boundary.rate".functions(c, target).text:gmatch "[^\n]+" do
                assert(#line <= 100, run.spec .. ": " .. line)
            end
        end
    end
end)

add("every schedule of the catalog has figures", function()
    local text = assert(host.read "tests/reference/schedules/figures.lua")
    for name, rule in require "catalog.catalog".load().schedules:each() do
        assert(rule.plateau or text:find('{ "' .. name .. '"', 1, true), name .. ": none in schedules.py")
    end
end)

add("gagen lr prints nine digits, and the momentum if it changes", function(t, numeric)
    for _, run in ipairs(figures.runs) do
        if run.spec:find "onecycle" or run.spec:find "sequential" or run.spec == '{ "cosine", warmup = 3 }' then
            local path = write_spec(t, numeric, { schedule = run.spec, updates = run.updates,
                optimizer = sgd(run.base) })
            local expected = {}
            for i, rate in ipairs(run.rates) do
                local moved = run.momenta and ("\t%.9g"):format(run.momenta[i])
                    or run.updates == 1 and "\t0.95" or ""
                expected[i] = ("%d\t%.9g%s\n"):format(i, rate, moved)
            end
            local result = t.run { t.gagen, "lr", path }
            t.equal(result.out, table.concat(expected), run.spec .. result.err)
        end
    end
end)

-- The rates of a program's updates, to the last digit.
local function rates_of(t, program, updates)
    local numbers = { "1 " .. updates .. " 1" .. (" 0.5"):rep(updates) }
    t.write(program.folder .. "/numbers", numbers[1] .. "\n")
    local result = program:check("updates", program.folder .. "/numbers")
    t.equal(result.status, 0, result.err)
    local rates = {}
    for rate in result.out:gmatch("update %d+ lr (%S+)") do rates[#rates + 1] = tonumber(rate) end
    return rates
end

for _, run in ipairs(figures.runs) do
    if run.spec:find "three_phase" or run.spec:find "T_mult = 2" or run.spec:find "triangular2"
        or run.spec:find '{ "constant" },' or run.spec:find "product" then
        add("the program's rates: " .. run.spec, function(t, numeric)
            local program = numeric.build { model = ' { linear "a" { 3 } }', schedule = run.spec,
                updates = run.updates, optimizer = sgd(run.base) }
            near(t, rates_of(t, program, run.updates), run.rates, run.spec)
        end)
    end
end

add("a function of the spec is the program's rate", function(t, numeric)
    local text = '(function(t, base) return base * where(lt(t, 4), 0.5, 1 / sqrt(1 + t)) end)'
    local program = numeric.build { model = ' { linear "a" { 3 } }', schedule = text, updates = 9,
        optimizer = sgd(0.1) }
    local wanted = {}
    for u = 0, 8 do wanted[u + 1] = 0.1 * (u < 4 and 0.5 or 1 / math.sqrt(1 + u)) end
    near(t, rates_of(t, program, 9), wanted, "function")
end)

-- 64 rows in micro-batches of 12: 5 an epoch; with three to a cycle one full cycle and a tail of two.
local EPOCHS = { drop = { 0, 1, 2, 3, 4, 5 }, flush = { 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5 },
    carry = { 0, 0, 1, 1, 2, 3, 3, 4, 4, 5 } }

add("by epoch: the value of t with each tail", function(t, numeric)
    for tail, epochs in next, EPOCHS do
        local case = { schedule = '{ "step", gamma = 0.5, by = "epoch" }', updates = #epochs,
            accumulate = ('{ 3, tail = "%s" }'):format(tail), optimizer = sgd(0.1) }
        local wanted, lines = {}, {}
        for i, epoch in ipairs(epochs) do
            wanted[i] = 0.1 * 0.5 ^ epoch
            lines[i] = ("%d\t%.9g\n"):format(i, wanted[i])
        end
        t.equal(t.run { t.gagen, "lr", write_spec(t, numeric, case) }.out, table.concat(lines), tail)
        case.model = ' { linear "a" { 3 } }'
        near(t, rates_of(t, numeric.build(case), #epochs), wanted, tail)
    end
end)

-- 64 rows in micro-batches of 6: 10 an epoch. Five cycles of 4 are two epochs with "carry", more with "drop".
add("by epoch: the length of a run in updates with each tail", function(t, numeric)
    for tail, wanted in next, { carry = { 2, 2, 2, 1, 1 }, drop = { 3, 3, 2, 2, 1 } } do
        local case = { batch = 6, schedule = '{ "linear", by = "epoch" }', updates = 5,
            accumulate = ('{ 4, tail = "%s" }'):format(tail), optimizer = sgd(0.1) }
        for i, part in ipairs { table.unpack(wanted) } do wanted[i] = 0.1 * part / (tail == "carry" and 2 or 3) end
        case.model = ' { linear "a" { 3 } }'
        near(t, rates_of(t, numeric.build(case), 5), wanted, tail)
        local printed = {}
        for rate in t.run { t.gagen, "lr", write_spec(t, numeric, case) }.out:gmatch "\t(%S+)" do
            printed[#printed + 1] = tonumber(rate)
        end
        for i, rate in ipairs(wanted) do t.near(printed[i], rate, 1e-9) end
    end
end)

add("auto_lr: lr times the rows of an update over the reference rows", function(t, numeric)
    for kind, factor in next, { linear = 36 / 9, sqrt = 2 } do
        local path = write_spec(t, numeric, { accumulate = "(3)", updates = 1, optimizer = sgd(0.1),
            schedule = ('{ "constant", auto_lr = "%s", base_rows = 9 }'):format(kind) })
        t.equal(t.run { t.gagen, "lr", path }.out, ("1\t%.9g\n"):format(0.1 * factor))
    end
end)

add("a schedule that depends on evaluations equals torch's", function(t, numeric)
    for _, plateau in ipairs(figures.plateaus) do
        local program = numeric.build { model = ' { linear "a" { 3 } }', optimizer = sgd(0.1), flags = "-O0 -DREPORTS",
            schedule = ('{ "plateau"%s }'):format(plateau.fields), more = "eval { every = 5 }" }
        local file = program.folder .. "/metrics"
        t.write(file, table.concat(figures.metrics, "\n") .. "\n")
        local result, rates = program:check("reports", file), {}
        t.equal(result.status, 0, result.err)
        for rate in result.out:gmatch("%S+") do rates[#rates + 1] = tonumber(rate) end
        near(t, rates, plateau.rates, plateau.fields)
    end
end)

local PLATEAU = [[
data       { "csv", train = "tiny.csv", target = "last", split = { eval = 20, seed = 1 } }
batch      (5)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, momentum = 0.9 }
schedule   { "plateau", patience = 1, threshold = 0.02, factor = 0.5 }
train      { updates = 60 }
eval       { every = 4 }
]]

-- The rates of the updates of a run, as texts.
local function logged(programs, program, o)
    local list = {}
    for _, event in ipairs(programs.events(program, o)) do
        if event.event == "update" then list[#list + 1] = event.lr end
    end
    return list
end

add("the state of plateau is in the checkpoint, on both targets", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, environment = t.load("tests/lua/devices.lua").open(t)
    for target, how in next, { c = {}, cuda = { env = environment() } } do
        local program = programs.build("plateau_" .. target, PLATEAU .. ('target "%s"\n'):format(target))
        local function run(...) return logged(programs, program, { env = how.env, ... }) end
        local straight, folder = run(), t.temp()
        assert(straight[60] < straight[1] / 3, "the rate has fallen")
        run("--cycles", 42, "--checkpoint", folder)
        t.equal(run("--resume", "latest", "--checkpoint", folder), table.move(straight, 43, 60, 1, {}), target)
    end
end)

-- ReduceLROnPlateau applied to the accuracies that a program logs.
add("a schedule that depends on the accuracy: more is better", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local text = PLATEAU:gsub("schedule [^\n]*", 'schedule { "plateau", metric = "accuracy", patience = 1, factor = 0.5 }')
        :gsub("every = 4", '%0, metrics = { "accuracy" }')
    local program = programs.build("plateau_accuracy", text)
    local rate, best, bad, falls = 0.1, -math.huge, 0, 0
    for _, event in ipairs(programs.events(program, {})) do
        if event.event == "update" then t.near(event.lr, rate, 1e-9) end
        if event.event == "eval" then
            if event.accuracy > best * (1 + 1e-4) then best, bad = event.accuracy, 0 else bad = bad + 1 end
            if bad > 1 then rate, bad, falls = rate * 0.5, 0, falls + 1 end
        end
    end
    assert(best > 0.5 and falls > 1, ("best %g, %d times less"):format(best, falls))
end)

-- Each rate is a product of as many factors as updates were done: the same after a resume, and when asked for
-- rates out of order.
add("a product of factors continues after a resume, on both targets", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, environment = t.load("tests/lua/devices.lua").open(t)
    local text = PLATEAU:gsub("schedule [^\n]*", "schedule { function(t) return 1 - 1 / (t + 9) end, product = true }")
    for target, how in next, { c = {}, cuda = { env = environment() } } do
        local program = programs.build("product_" .. target, text .. ('target "%s"\n'):format(target))
        local function run(...) return logged(programs, program, { env = how.env, ... }) end
        local straight, folder, wanted = run(), t.temp(), {}
        for u = 1, 60 do wanted[u] = 0.1 * 9 / (u + 8) end
        for u, rate in ipairs(straight) do t.near(rate, wanted[u], 1e-9) end        -- nine digits in the log
        run("--cycles", 42, "--checkpoint", folder)
        t.equal(run("--resume", "latest", "--checkpoint", folder), table.move(straight, 43, 60, 1, {}), target)
    end
end)

add("the log has the momentum of each update, on both targets", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, environment = t.load("tests/lua/devices.lua").open(t)
    local text = PLATEAU:gsub("schedule [^\n]*", 'schedule { "onecycle", three_phase = true }')
    for target, how in next, { c = {}, cuda = { env = environment() } } do
        local program = programs.build("momentum_" .. target, text .. ('target "%s"\n'):format(target))
        local events, wanted = {}, {}
        for _, event in ipairs(programs.events(program, { env = how.env })) do
            if event.event == "update" then events[#events + 1] = event end
        end
        for rate, momentum in programs.gagen { "lr", program.spec }.out:gmatch "\t(%S+)\t(%S+)" do
            wanted[#wanted + 1] = { tonumber(rate), tonumber(momentum) }
        end
        t.equal({ #events, #wanted }, { 60, 60 }, target)
        for u, event in ipairs(events) do
            t.near(event.lr, wanted[u][1], 1e-9)
            t.near(assert(event.momentum, "no momentum"), wanted[u][2], 1e-9)
        end
    end
    for _, event in ipairs(programs.events(programs.build("plateau_c", PLATEAU .. 'target "c"\n'), {})) do
        assert(not event.momentum, "a schedule that moves none")
    end
end)

local RANKS = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (3)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
schedule   %s
train      { epochs = 1 }
parallel   "ddp"
]]

-- 30 updates with one rank, 15 with two: the warm-up of each is a fifth of them.
local PARTS = {
    ['{ "cosine", warmup = 0.2 }'] = function(p) return 0.05 * (1 + math.cos(math.pi * p)) end,
    ['{ "sequential", { "constant" }, { "linear", warmup = 0.4 }, milestones = { 5 } }'] = false,
}

add("a warm-up given as a part of the run is that part for every number of ranks", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, environment = t.load("tests/lua/devices.lua").open(t)
    local on_device = programs.build("schedule_ranks_cuda", RANKS:format '{ "cosine", warmup = 0.2 }'
        .. 'target "cuda"\n')
    for text, behind in next, PARTS do
        local program = programs.build("schedule_ranks" .. (behind and "" or "_stages"), RANKS:format(text),
            { comm = "mpi" })
        for ranks, updates in ipairs { 30, 15 } do
            local wanted, printed = {}, {}
            for u = 0, updates - 1 do
                local from = behind and 0 or 5
                local length, at = updates - from, u - from
                local warm = behind and 0.2 * length or 0.4 * length
                local p = (at - warm) / (length - warm)
                wanted[u + 1] = at < 0 and 0.1 or at < warm and 0.1 * (at + 1) / warm
                    or behind and behind(p) or 0.1 * (1 - p)
            end
            for rate in programs.gagen { "lr", program.spec, "--ranks", tostring(ranks) }.out:gmatch "\t(%S+)" do
                printed[#printed + 1] = tonumber(rate)
            end
            local found = logged(programs, program, { ranks = ranks, "--threads", 1 })
            if ranks == 1 and behind then
                t.equal(logged(programs, on_device, { env = environment() }), found, "on a device")
            end
            t.equal({ #printed, #found }, { updates, updates }, text)
            for u, rate in ipairs(wanted) do
                t.near(printed[u], rate, 1e-9)
                t.near(found[u], rate, 1e-9)
            end
        end
    end
end)

-- The length of a warm-up is a number where the ranks are known, else an expression of the run's length.
add("every schedule with a warm-up has the same rates with and without ranks in the spec", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local MORE = { multistep = ', milestones = { 2, 4, 9 }, compat = { "drop_milestones" }' }
    local path, seen = programs.folder() .. "/schedule_open.lua", 0
    for name, rule in require "catalog.catalog".load().schedules:each() do
        local text = ('{ "%s", warmup = 0.2%s }'):format(name, MORE[name] or "")
        local open, known = RANKS:format(text), RANKS:gsub('"ddp"', '{ "ddp", ranks = 2 }'):format(text)
        if rule.fields[1].name == "warmup" then
            t.write(path, open)
            local found = programs.gagen { "lr", path, "--ranks", "2" }
            t.write(path, known)
            t.equal(found.out, programs.gagen { "lr", path }.out, text .. found.err)
            seen = seen + (found.status == 0 and 1 or 0)
        end
    end
    assert(seen >= 10, "schedules with a warm-up")
end)

add("the option for the ranks wins over the spec's, for auto_lr too", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/schedule_auto_ranks.lua"
    t.write(path, (RANKS:gsub('"ddp"', '{ "ddp", ranks = 2 }')
        :format '{ "constant", auto_lr = "linear", base_rows = 3 }'))
    t.contains(programs.gagen { "lr", path }.out, "15\t0.2\n")
    t.contains(programs.gagen { "lr", path, "--ranks", "3" }.out, "10\t0.3\n")
end)

-- The names of Colossal-AI's, torch's and Hugging Face's schedules, and their equivalents in a spec.
local PEERS = {
    CosineAnnealingLR = "cosine_annealing", CosineAnnealingWarmupLR = "cosine", FlatAnnealingLR = "flat_annealing",
    FlatAnnealingWarmupLR = "flat_annealing", LinearWarmupLR = "linear_warmup", MultiStepLR = "multistep",
    MultiStepWarmupLR = "multistep", PolynomialLR = "polynomial_lr", PolynomialWarmupLR = "polynomial",
    OneCycleLR = "onecycle", StepLR = "step", ExponentialLR = "exponential", ConstantLR = "constant_lr",
    LinearLR = "linear_lr", CosineAnnealingWarmRestarts = "cosine_annealing_warm_restarts", CyclicLR = "cyclic",
    ReduceLROnPlateau = "plateau", SequentialLR = "sequential", ChainedScheduler = "chained", SWALR = "swa",
    LambdaLR = "function", MultiplicativeLR = "function", WarmupScheduler = "sequential", linear = "linear",
    cosine = "cosine", cosine_with_restarts = "cosine_with_restarts", polynomial = "polynomial", constant = "constant",
    constant_with_warmup = "constant_with_warmup",
}

add("every schedule of other libraries has figures and an entry in docs/PORTING.md", function()
    local specs, porting = {}, assert(host.read "docs/PORTING.md")
    for _, run in ipairs(figures.runs) do specs[run.spec:match '^{ "([%w_]+)"' or "function"] = true end
    for peer, name in next, PEERS do
        assert(specs[name] or name == "plateau" and #figures.plateaus > 0, peer)
        assert(porting:find(peer, 1, true), "docs/PORTING.md does not name " .. peer)
    end
end)

local REFUSED = {
    { "(function(t, base) return base / (t - 3) end)", "the function gives inf for t = 3, expected a finite number" },
    { '{ "plateau" }', "looks at evaluations: the word eval is missing" },
    { '{ "plateau", metric = "accuracy" }', "looks at the accuracy, which eval does not measure", nil, nil,
        "eval { every = 5 }" },
    { '{ "cosine", warmup = 20 }', "warmup is 20, expected less than the 20 updates of the schedule" },
    { '{ "cosine", warmup = 2.5 }', "warmup is 2.5, expected an integer or a fraction below 1" },
    { '{ "multistep", milestones = {} }', "milestones is empty" },
    { '{ "multistep", warmup = 5, milestones = { 3 } }', "the milestone 3 lies inside the warm-up of 5" },
    { '{ "multistep", milestones = { 5, 3 } }', "in ascending order" },
    { '{ "linear", compat = { "negative" } }', "compat has 'negative', expected warmup_from_zero" },
    { '{ "linear_warmup", warmup = 2, compat = { "warmup_from_zero" } }', "'warmup_from_zero', expected negative" },
    { '{ "step", compat = { 3 } }', "compat has a number, expected warmup_from_zero" },
    { '{ "sequential", { "linear_lr" }, { "cosine" }, milestones = {} }', "2 schedules need 1 milestones" },
    { '{ "sequential", { "linear_lr" }, { "cosin" }, milestones = { 5 } }', "stage 2: 'cosin' is unknown" },
    { '{ "sequential", { "linear_lr", total = 3 }, { "cosine" }, milestones = { 5 } }', "unknown field 'total'" },
    { '{ "sequential", { "onecycle" }, { "cosine" }, milestones = { 5 } }', "moves no momentum as a stage" },
    { '{ "chained", { "cyclic", max_lr = 0.3 } }', "moves no momentum as a stage" },
    { '{ "chained", { "wsd", min = 0.01 } }', "'wsd' has a rate of its own" },
    { '{ "chained", { "flat_annealing", eta_min = 0.01 } }', "'flat_annealing' has a rate of its own" },
    { '{ "wsd", warmup = 5, decay = 16 }', "decay is 16, but 15 updates or epochs follow the warm-up" },
    { '{ "cosine", compat = { warmup_from_zero = true } }', "compat has the key 'warmup_from_zero'" },
    { '{ "sequential", 4, { "cosine" }, milestones = { 5 } }', "stages is 4" },
    { '{ "chained", { "cosine", min = 0.1 } }', "'cosine' has a rate of its own" },
    { '{ "constant", auto_lr = "linear" }', "auto_lr and base_rows belong together" },
    { '{ "constant", base_rows = 4 }', "auto_lr and base_rows belong together" },
    { '{ "constant", auto_lr = "linear", base_rows = 4 }', "auto_lr needs one accumulate for all cycles", nil,
        "{ 1, later = { [3] = 2 } }" },
    { '{ "onecycle", max_lr = 0.3, auto_lr = "linear", base_rows = 4 }', "on which this schedule does not depend" },
    { '{ function(t) return 0.1 end, auto_lr = "sqrt", base_rows = 4 }', "on which this schedule does not depend" },
    { '{ "onecycle" }', "moves the momentum, but the optimizer's is 0", '{ "sgd", lr = 0.1 }' },
    { '{ "onecycle" }', "moves the momentum, but 'adagrad' has none", '{ "adagrad" }' },
    { '{ "cosine", product = true }', "product is for a function" },
    { '{ function(t, base) return base end, product = true }', "expected one of t alone" },
    { '{ "step", by = "epoch" }', "needs one accumulate for all cycles", nil, "{ 1, later = { [3] = 2 } }" },
    { '(function(t, base) return dropout(0.5)(t) end)', "schedule" },
}

add("stages are the same one behind the other and as a list by their name", function(t, numeric)
    local function rates(text)
        local schedule = ('{ "sequential", %s, milestones = { 5 } }'):format(text)
        local result = t.run { t.gagen, "lr", write_spec(t, numeric, { schedule = schedule, optimizer = sgd(0.1) }) }
        t.equal(result.status, 0, result.err)
        return result.out
    end
    t.equal(rates 'stages = { { "linear_lr" }, { "cosine" } }', rates '{ "linear_lr" }, { "cosine" }')
end)

-- The gradient is 1 in each update. torch keeps and reads no buffer where the momentum is 0, here in the third update.
add("a momentum that is moved to 0 leaves the buffer as it is", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    t.write(programs.folder() .. "/data/ones.csv", ("1,0\n"):rep(6))
    local p = programs.build("momentum_zero", [[
data       { "csv", train = "ones.csv", target = "last", shuffle = false }
batch      (1)
model      { linear "a" { 1, bias = false } }
init       { { "*", value = 1 } }
loss       (function(out, batch) return out end)
optimizer  { "sgd", lr = 0.05, momentum = 0.9, nesterov = true }
schedule   { "cyclic", max_lr = 0.2, step_size_up = 2, base_momentum = 0, max_momentum = 0.5 }
precision  "f64"
train      { updates = 6, allow = { "unusual_rate" } }
]])
    local w, buf = 1, 0
    for _, momentum in ipairs { 0.5, 0.25, 0, 0.25, 0.5, 0.25 } do
        local rate = 0.05 + 0.15 * (1 - 2 * momentum)
        if momentum > 0 then buf = momentum * buf + 1 end
        w = w - rate * (momentum > 0 and 1 + momentum * buf or 1)
    end
    local found = programs.tensors(programs.dump(p, {}) .. "/parameters.safetensors")["a.weight"]
    t.near(found.values[1], w, 1e-14)
end)

add("a rate that ends above its start gives a warning", function(t, numeric)
    local function said(schedule, lr)
        local path = write_spec(t, numeric, { schedule = schedule, optimizer = sgd(lr) })
        return t.run { t.gagen, "check", path }.err
    end
    local text = "end_lr is 0.0001, more than the optimizer's lr, 5e-05: the rate rises"
    t.contains(said('"polynomial"', 5e-5), "schedule 'polynomial': " .. text)
    t.contains(said('{ "sequential", { "constant" }, { "polynomial" }, milestones = { 3 } }', 5e-5), text)
    assert(not said('"polynomial"', 1e-3):find "rises")
end)

add("wrong options are refused", function(t, numeric)
    for _, refused in ipairs(REFUSED) do
        local path = write_spec(t, numeric, { schedule = refused[1], optimizer = refused[3] or sgd(0.1),
            accumulate = refused[4], more = refused[5] })
        local result = t.run { t.gagen, "check", path }
        t.equal(result.status, 1, refused[1] .. result.err)
        t.contains(result.err, refused[2])
    end
end)

return tests
