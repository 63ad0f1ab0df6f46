-- Schedules that torch computes from the rate of the step before: SWALR behind another scheduler, as in the loop of
-- its documentation, and ChainedScheduler. The rates are those of the recurrences of torch.optim, written out here and
-- compared with figures of torch where it has made them (tests/reference/schedules/figures.lua).
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- === torch's schedulers =========================================================================

-- A scheduler is step(rate, k, base): the rate after its step number k, from the rate before; k = 0: when it is made.
local torch = {}

function torch.step(size, gamma)
    return function(rate, k) return k > 0 and k % size == 0 and rate * gamma or rate end
end

function torch.multistep(milestones, gamma)
    return function(rate, k)
        for _, m in ipairs(milestones) do rate = m == k and rate * gamma or rate end
        return rate
    end
end

function torch.exponential(gamma)
    return function(rate, k) return k > 0 and rate * gamma or rate end
end

function torch.constant(factor, total)
    return function(rate, k)
        return k == 0 and rate * factor or k == total and rate * (1 / factor) or rate
    end
end

function torch.linear(first, last, total)
    return function(rate, k)
        if k == 0 then return rate * first end
        return k > total and rate or rate * (1 + (last - first) / (total * first + (k - 1) * (last - first)))
    end
end

function torch.polynomial(total, power)
    return function(rate, k)
        return (k == 0 or k > total) and rate or rate * ((1 - k / total) / (1 - (k - 1) / total)) ^ power
    end
end

function torch.cosine(T, eta)
    return function(rate, k, base)
        if k == 0 then return rate end
        if (k - 1 - T) % (2 * T) == 0 then return rate + (base - eta) * (1 - math.cos(math.pi / T)) / 2 end
        return (1 + math.cos(math.pi * k / T)) / (1 + math.cos(math.pi * (k - 1) / T)) * (rate - eta) + eta
    end
end

function torch.swa(swa_lr, epochs, form)
    local function alpha(k)
        local p = math.max(0, math.min(1, k / math.max(1, epochs)))
        return form == "linear" and p or (1 - math.cos(math.pi * p)) / 2
    end
    return function(rate, k)
        local before = alpha(k - 1)
        local first = before == 1 and swa_lr or (rate - before * swa_lr) / (1 - before)
        return swa_lr * alpha(k) + first * (1 - alpha(k))
    end
end

-- The rates of `updates` updates under schedulers that all make a step behind each.
local function chain(base, updates, ...)
    local rate, rates = base, {}
    for k = 0, updates - 1 do
        for _, scheduler in ipairs { ... } do rate = scheduler(rate, k, base) end
        rates[k + 1] = rate
    end
    return rates
end

-- for i in range(updates): optimizer.step(); if i > swa_start: swa.step() else: scheduler.step()
local function swa_loop(base, updates, swa_start, scheduler, swa)
    local rate, rates = scheduler(base, 0, base), {}
    for i = 0, updates - 1 do
        rates[i + 1] = rate
        rate = i > swa_start and swa(rate, i - swa_start) or scheduler(rate, i + 1, base)
    end
    return rates
end

-- === comparing ==================================================================================

local function near(found, wanted, what)
    assert(#found == #wanted, what .. ": number of rates")
    for i, x in ipairs(wanted) do
        if not (math.abs(found[i] - x) <= 1e-12 * math.max(math.abs(x), 1e-3)) then
            error(("%s: rate %d is %.17g, %.17g expected"):format(what, i, found[i], x), 0)
        end
    end
end

-- A case of tests/numeric with this schedule.
local function case(schedule, updates, base)
    return { model = ' { linear "a" { 3 } }', schedule = schedule, updates = updates,
        optimizer = ('{ "sgd", lr = %g }'):format(base) }
end

-- The rates by the expressions of the spec.
local function rates_of(t, schedule, updates, base)
    local numeric, folder = t.load("tests/numeric/numeric.lua")(t), t.temp()
    t.write(folder .. "/data/rows.csv", ("1,2,3,4,0\n"):rep(64))
    t.write(folder .. "/probe.lua", numeric.spec(case(schedule, updates, base)))
    local _, c = require "spec.load".load(folder .. "/probe.lua", {}, {})
    local rate, rates = require "spec.schedule".expressions(c), {}
    for u = 1, updates do rates[u] = require "base.expr".evaluate(rate, { t = u - 1, total = c.schedule.total }) end
    return rates
end

-- The rates of the updates of a program.
local function program_rates(t, schedule, updates, base)
    local program = t.load("tests/numeric/numeric.lua")(t).build(case(schedule, updates, base))
    t.write(program.folder .. "/numbers", ("1 %d 1%s\n"):format(updates, (" 0.5"):rep(updates)))
    local result, rates = program:check("updates", program.folder .. "/numbers"), {}
    t.equal(result.status, 0, result.err)
    for rate in result.out:gmatch("update %d+ lr (%S+)") do rates[#rates + 1] = tonumber(rate) end
    return rates
end

-- The complaint of gagen about a spec with this schedule.
local function refused(t, schedule)
    local path = t.temp() .. "/probe.lua"
    t.write(path:gsub("[^/]*$", "data/rows.csv"), ("1,2,3,4,0\n"):rep(64))
    t.write(path, t.load("tests/numeric/numeric.lua")(t).spec(case(schedule, 20, 0.1)))
    local result = t.run { t.gagen, "check", path }
    t.equal(result.status, 1, schedule .. result.err)
    return result.err
end

local FIGURES = {
    ['{ "step", step_size = 4, gamma = 0.5 }'] = { torch.step(4, 0.5) },
    ['{ "multistep", milestones = { 3, 5, 5, 9 } }'] = { torch.multistep({ 3, 5, 5, 9 }, 0.1) },
    ['{ "exponential", gamma = 0.9 }'] = { torch.exponential(0.9) },
    ['{ "constant_lr" }'] = { torch.constant(1 / 3, 5) },
    ['{ "linear_lr" }'] = { torch.linear(1 / 3, 1, 5) },
    ['{ "polynomial_lr", total_iters = 7, power = 2 }'] = { torch.polynomial(7, 2) },
    ['{ "cosine_annealing", T_max = 6, eta_min = 0.01 }'] = { torch.cosine(6, 0.01) },
    ['{ "cosine_annealing", T_max = 1 }'] = { torch.cosine(1, 0) },
    ['{ "swa", swa_lr = 0.05 }'] = { torch.swa(0.05, 10) },
    ['{ "swa", swa_lr = 0.5, anneal_epochs = 4, anneal_strategy = "linear" }'] = { torch.swa(0.5, 4, "linear") },
    ['{ "chained", { "constant_lr", factor = 0.1, total_iters = 3 }, { "exponential", gamma = 0.9 } }'] =
        { torch.constant(0.1, 3), torch.exponential(0.9) },
}

add("the recurrences give torch's figures", function(t)
    local seen, wanted = 0, 0
    for _ in next, FIGURES do wanted = wanted + 1 end
    for _, run in ipairs(dofile "tests/reference/schedules/figures.lua".runs) do
        if FIGURES[run.spec] then
            near(chain(run.base, run.updates, table.unpack(FIGURES[run.spec])), run.rates, run.spec)
            seen = seen + 1
        end
    end
    t.equal(seen, wanted)
end)

-- === swa behind another schedule ================================================================

local LOOPS = {
    { '{ "swa", { "cosine_annealing", T_max = 12 }, swa_lr = 0.05, swa_start = 5 }', 5, torch.cosine(12, 0),
        torch.swa(0.05, 10) },
    { '{ "swa", { "exponential", gamma = 0.9 }, swa_lr = 0.05, swa_start = 6, anneal_epochs = 4, '
        .. 'anneal_strategy = "linear" }', 6, torch.exponential(0.9), torch.swa(0.05, 4, "linear") },
    { '{ "swa", { "step", step_size = 2, gamma = 0.5 }, swa_lr = 0.02, swa_start = 0, anneal_epochs = 0 }', 0,
        torch.step(2, 0.5), torch.swa(0.02, 0) },
    { '{ "swa", { "linear_lr" }, swa_lr = 0.2, swa_start = 30 }', 30, torch.linear(1 / 3, 1, 5), torch.swa(0.2, 10) },
}

add("swa behind another schedule is the loop of torch's documentation", function(t)
    for _, loop in ipairs(LOOPS) do
        near(rates_of(t, loop[1], 20, 0.1), swa_loop(0.1, 20, loop[2], loop[3], loop[4]), loop[1])
    end
end)

add("the program's rates: swa behind another schedule", function(t)
    local loop = LOOPS[1]
    near(program_rates(t, loop[1], 20, 0.1), swa_loop(0.1, 20, loop[2], loop[3], loop[4]), loop[1])
end)

add("by epoch, swa_start counts epochs", function(t)
    local numeric, folder = t.load("tests/numeric/numeric.lua")(t), t.temp()
    t.write(folder .. "/data/rows.csv", ("1,2,3,4,0\n"):rep(64))                   -- 5 updates an epoch
    t.write(folder .. "/probe.lua", numeric.spec(case('{ "swa", { "exponential", gamma = 0.5 }, swa_lr = 0.05, '
        .. 'swa_start = 1, anneal_epochs = 2, by = "epoch" }', 30, 0.8)))
    local wanted = swa_loop(0.8, 6, 1, torch.exponential(0.5), torch.swa(0.05, 2))
    local found = {}
    for rate in t.run { t.gagen, "lr", folder .. "/probe.lua" }.out:gmatch "\t(%S+)" do found[#found + 1] = rate end
    t.equal(#found, 30)
    for u, rate in ipairs(found) do t.near(tonumber(rate), wanted[(u - 1) // 5 + 1], 1e-9) end
end)

add("swa_start and the schedule before it belong together", function(t)
    t.contains(refused(t, '{ "swa", swa_lr = 0.05, swa_start = 3 }'), "swa_start without the schedule before it")
    t.contains(refused(t, '{ "swa", { "step" }, swa_lr = 0.05 }'), "a schedule without swa_start: expected both")
    t.contains(refused(t, '{ "swa", { "step" }, { "cosine" }, swa_lr = 0.05, swa_start = 3 }'), "2 schedules, expected")
    t.contains(refused(t, '{ "swa", { "stepp" }, swa_lr = 0.05, swa_start = 3 }'), "stage 1: 'stepp' is unknown")
end)

-- === chained ====================================================================================

local CHAINS = {
    { '{ "chained", { "exponential", gamma = 0.9 }, { "cosine_annealing", T_max = 6, eta_min = 0.01 } }',
        torch.exponential(0.9), torch.cosine(6, 0.01) },
    { '{ "chained", { "cosine_annealing", T_max = 6, eta_min = 0.01 }, { "exponential", gamma = 0.9 } }',
        torch.cosine(6, 0.01), torch.exponential(0.9) },
    { '{ "chained", { "constant_lr", factor = 0.1, total_iters = 3 }, { "cosine_annealing", T_max = 30, '
        .. 'eta_min = 0.002 }, { "step", step_size = 4, gamma = 0.5 } }', torch.constant(0.1, 3),
        torch.cosine(30, 0.002), torch.step(4, 0.5) },
    { '{ "chained", { "linear_lr", total_iters = 7 }, { "multistep", milestones = { 3, 9, 9 }, gamma = 0.5 }, '
        .. '{ "cosine_annealing", T_max = 1, eta_min = 0.03 } }', torch.linear(1 / 3, 1, 7),
        torch.multistep({ 3, 9, 9 }, 0.5), torch.cosine(1, 0.03) },
    { '{ "chained", { "polynomial_lr", total_iters = 8, power = 2 }, { "cosine_annealing", T_max = 5, '
        .. 'eta_min = 0.05 }, { "cosine_annealing", T_max = 11, eta_min = 0.01 } }', torch.polynomial(8, 2),
        torch.cosine(5, 0.05), torch.cosine(11, 0.01) },
}

add("a chain with a lowest rate is torch's, step by step", function(t)
    for _, c in ipairs(CHAINS) do
        near(rates_of(t, c[1], 40, 0.1), chain(0.1, 40, table.unpack(c, 2)), c[1])
    end
end)

add("the program's rates: a chain with a lowest rate", function(t)
    near(program_rates(t, CHAINS[3][1], 40, 0.1), chain(0.1, 40, table.unpack(CHAINS[3], 2)), CHAINS[3][1])
end)

-- Two chains in one program: of stages 1 and 3.
add("the program's rates: chains in a sequence", function(t)
    local text = ('{ "sequential", %s, { "constant" }, %s, milestones = { 9, 11 } }'):format(CHAINS[1][1], CHAINS[2][1])
    local wanted = chain(0.1, 9, table.unpack(CHAINS[1], 2))
    table.move({ 0.1, 0.1 }, 1, 2, 10, wanted)
    table.move(chain(0.1, 20, table.unpack(CHAINS[2], 2)), 1, 20, 12, wanted)
    near(rates_of(t, text, 31, 0.1), wanted, text)
    near(program_rates(t, text, 31, 0.1), wanted, text)
end)

-- A part of two operations that is repeated has a name of its own.
add("the program's rates: a product of factors that repeat a part", function(t)
    local text = "{ function(t) return where(lt(t, 6), 1 / (1 + 1 / t), 0.9 + 0.1 / (1 + 1 / t)) end, product = true }"
    local rate, wanted = 0.1, {}
    for k = 0, 11 do
        local part = 1 + 1 / k
        rate = k == 0 and rate or rate * (k < 6 and 1 / part or 0.9 + 0.1 / part)
        wanted[k + 1] = rate
    end
    near(program_rates(t, text, 12, 0.1), wanted, text)
end)

add("a chain with a lowest rate is the same after a resume, on both targets", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, environment = t.load("tests/lua/devices.lua").open(t)
    local wanted = chain(0.1, 24, table.unpack(CHAINS[3], 2))
    for target, env in next, { c = false, cuda = environment() } do
        local program = programs.build("chained_" .. target, ([[
data       { "csv", train = "tiny.csv" }
batch      (5)
model      { linear "fc" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
schedule   %s
train      { updates = 24 }
target     "%s"
]]):format(CHAINS[3][1], target))
        local function rates(...)
            local list = {}
            for _, event in ipairs(programs.events(program, { env = env or nil, ... })) do
                if event.event == "update" then list[#list + 1] = event.lr end
            end
            return list
        end
        local folder = t.temp()
        local list = rates("--cycles", 17, "--checkpoint", folder)
        table.move(rates("--resume", "latest", "--checkpoint", folder), 1, 7, 18, list)
        t.equal(#list, 24, target)
        for u, rate in ipairs(list) do t.near(rate, wanted[u], 1e-9) end                -- nine digits in the log
    end
end)

add("stages that do not fit a chain with a lowest rate are refused", function(t)
    local cosine = '{ "cosine_annealing", T_max = 6, eta_min = 0.01 }'
    local function check(stage, text)
        t.contains(refused(t, ('{ "chained", %s, %s }'):format(stage, cosine)), text)
    end
    check('{ "cosine" }', "'cosine' cannot be chained with 'cosine_annealing', which has a rate of its own: expected "
        .. "one of ")
    check('{ "step", warmup = 3 }', "'step' with a warm-up cannot be chained with 'cosine_annealing'")
    check('{ "constant_lr", factor = 0 }', "factor is 0, expected more")
    check('{ "cosine_annealing", eta_min = 0.02 }', "T_max is missing, expected the length of half a wave")
    check('{ "swa", swa_lr = 0.1 }', "'swa' has a rate of its own, expected stages that are factors of the base rate")
end)

return tests
