-- Every optimizer against torch, or against its formula where torch has none: fifty updates of a small
-- network, with weight decay, groups, and both as one micro-step and as four. The figures are made by
-- tests/reference/optimizers.py, whose options they hold. Known vectors; what a rule promises of zeros.
-- Invariant: no Python runs here.
local tests = {}

local BOUND = { f64 = 1e-9, f32 = 1e-5 }           -- ||a - b|| / ||b|| of each tensor
local ALL = os.getenv "GAGEN_TEST_ALL"
local IN_F32 = { sgd = true, adamw = true, lamb = true, adafactor = true, muon = true }    -- with make test

local MODELS = { mlp = 'linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 }',
    conv = 'reshape { 1, 2, 2 }, conv2d "conv" { 5, 2, padding = 1 }, tanh {}, flatten {}, linear "fc" { 3 }' }

local function spec(run, accumulate, precision, updates)
    return ([[
data       { "csv", train = "tiny.csv", target = "last", shuffle = false }
batch      (%d)
accumulate (%d)
model      { %s }
loss       "cross_entropy"
optimizer  { "%s"%s, groups = { %s{ rank = 1, lr_scale = 2, weight_decay = 0 } } }
schedule   %s
precision  "%s"
train      { updates = %d, seed = 1 }
]]):format(16 // accumulate, accumulate, MODELS[run.model or "mlp"], run.rule, run.fields,
        run.heads and run.heads .. ", " or "", run.schedule or '"constant"', precision,
        updates or 50)
end

local function distance(a, b)
    local gap, size = 0, 0
    assert(#a == #b, "other sizes")
    for i, x in ipairs(b) do
        assert(a[i] - a[i] == 0, "not finite")
        gap, size = gap + (a[i] - x) ^ 2, size + x ^ 2
    end
    return math.sqrt(gap / size)
end

-- muon in f32: the iteration's polynomial a s + b s^3 + c s^5 has a slope of at most a on the singular values that
-- occur, so one rounding of x, which has norm 1, may be a^steps roundings behind it; each update moves w by the
-- rate times that. The sum over the updates is added to what all rules are allowed.
local function bound_of(run, precision, wanted)
    if run.rule ~= "muon" or precision ~= "f32" then return BOUND[precision] end
    local rate = tonumber(run.fields:match "^, lr = ([%d.e-]+)" or 1e-3)
    local steps = math.tointeger(run.fields:match "ns_steps = (%d+)" or 5)
    local a, squares = tonumber(run.fields:match "ns_coefficients = { ([%d.]+)" or 3.4445), 0
    for _, x in ipairs(wanted) do squares = squares + x * x end
    return BOUND.f32 + 50 * rate * a ^ steps * 2 ^ -24 / math.sqrt(squares)
end

local function compare(t, number, run, accumulate, precision)
    local programs = t.load("tests/lua/programs.lua")(t)
    local program = programs.build(("optimizer_%d_%d_%s"):format(number, accumulate, precision),
        spec(run, accumulate, precision))
    local dump = programs.dump(program, { "--threads", accumulate == 1 and 2 or 1 })
    local found = programs.tensors(dump .. "/parameters.safetensors")
    for name, wanted in next, run.parameters do
        local off, bound = distance(found[name].values, wanted), bound_of(run, precision, wanted)
        if not (off <= bound) then
            error(("%s%s, A = %d, %s: %s is off by %.3g, at most %.2g expected"):format(run.rule, run.fields,
                accumulate, precision, name, off, bound), 0)
        end
    end
end

-- One run of a rule of each kind is taken in single precision too; GAGEN_TEST_ALL takes all ways of all runs.
local figures = dofile "tests/reference/optimizers/figures.lua"
local seen = {}
for number, run in ipairs(figures) do
    for _, way in ipairs { { 4, "f64" }, { 1, "f32" }, { 1, "f64" }, { 4, "f32" } } do
        local accumulate, precision = way[1], way[2]
        local way_name = (run.model and " in a " .. run.model or "")
            .. (run.schedule and " with " .. run.schedule or "")
        if ALL or accumulate == 4 and precision == "f64" or accumulate == 1 and precision == "f32"
            and IN_F32[run.rule] and not seen[run.rule] then
            tests[#tests + 1] = { ("%s%s%s: A = %d, %s"):format(run.rule, run.fields, way_name, accumulate,
                precision),
                function(t) compare(t, number, run, accumulate, precision) end }
        end
    end
    seen[run.rule] = true
end

tests[#tests + 1] = { "every optimizer of the catalog has figures", function()
    for name in require "catalog.catalog".load().optimizers:each() do
        assert(seen[name], name .. ": no run in tests/reference/optimizers.py")
    end
end }

-- === both targets, layers, threads ==============================================================

-- Rules with features that sgd and adamw do not use: a branch, sums over tensors, matrices. Scalar state is that of nadam
-- with a schedule.
local ON_A_DEVICE = { radam = true, fused_lamb = true, muon_conv = true, adafactor_conv = true }

-- Eight updates, stopped behind the first micro-step of the seventh and resumed: six in one run, then two in another.
-- Radam's rectification begins at the sixth, a schedule's momentum turns at the fourth.
local function on_device(t, number, run)
    local devices = t.load("tests/lua/devices.lua")
    local programs, environment = devices.open(t)
    local env = environment(devices.checked(1))
    local text = spec(run, 4, "f64", run.schedule and 8)
    local expected = programs.dump(programs.build(("optimizer_%d_%s"):format(number, run.schedule and "short"
        or "4_f64"), text), { "--cycles", 8 })
    local program = programs.build(("optimizer_%d_cuda"):format(number), text .. 'target "cuda"\n')
    local files = { "parameters", host.exists(expected .. "/state.safetensors") and "state" or nil }
    local half = t.temp()
    programs.train(program, { "--stop-micro", 25, "--checkpoint", half, status = 75, env = env })
    programs.close(programs.dump(program, { "--cycles", 8, "--resume", "latest", "--checkpoint", half,
        env = env }), expected, 1e-11, files)
end

local tried = {}
for number, run in ipairs(figures) do
    local kind = run.rule .. (run.model and "_" .. run.model or "")
    if ALL or ON_A_DEVICE[kind] and not tried[kind] or run.schedule and (run.rule == "adam" or run.rule == "nadam") then
        tests[#tests + 1] = { ("on a device: %s%s%s"):format(run.rule, run.fields, run.schedule or ""), function(t)
            on_device(t, number, run)
        end }
    end
    tried[kind] = true
end

-- The program of the first figures of a rule.
local function figure(programs, rule)
    for number, run in ipairs(figures) do
        if run.rule == rule then
            return programs.build(("optimizer_%d_4_f64"):format(number), spec(run, 4, "f64"))
        end
    end
end

tests[#tests + 1] = { "a resumed run has its scalar state: nadam continues bit by bit", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local program = figure(programs, "nadam")
    local straight, half = programs.dump(program, {}), t.temp()
    programs.train(program, { "--stop-micro", 101, "--checkpoint", half, status = 75 })
    programs.identical(programs.dump(program, { "--resume", "latest", "--checkpoint", half }), straight)
    local refused = programs.train(figure(programs, "adamw"), { "--resume", "latest", "--checkpoint", half,
        status = 1 })
    t.contains(refused.err, "keeps u0_mu_product where this program keeps nothing: written with another optimizer")
end }

-- 3 layers as one region and written out: norms are taken over a layer's tensor, not over the stack.
local function stack(model)
    return ([[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch      (16)
model      { linear "in" { 70 }, %s, linear "out" { 10 } }
loss       "cross_entropy"
optimizer  { "lamb", lr = 0.05, weight_decay = 0.1, groups = { { rank = 1, weight_decay = 0 } } }
precision  "f64"
train      { updates = 3 }
]]):format(model)
end

tests[#tests + 1] = { "norms of tensors: a region equals its layers, threads change nothing", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local layers = {}
    for l = 0, 2 do layers[l + 1] = ('linear "h.%d.fc" { 70 }, tanh {}'):format(l) end
    local rolled = programs.build("optimizer_rolled", stack 'times(3) "h" { linear "fc" { 70 }, tanh {} }')
    local flat = programs.build("optimizer_flat", stack(table.concat(layers, ", ")))
    local one = programs.dump(rolled, { "--threads", 1 })
    programs.identical(programs.dump(rolled, { "--threads", 3 }), one)
    programs.close(programs.dump(flat, {}), one, 1e-13)
end }

-- === zeros and NaN ==============================================================================

-- The result of update t of a weight and state of 0 and this gradient, beside elements that are not 0: what a rule for
-- matrices makes of those are x, row and column.
local function updated(rule, o, t, g)
    local expr = require "base.expr"
    local states, env = {}, { w = 0, g = g, lr = 0.1, t = t, grad_norm = 3, ratio = 0.7, scale = 0.7, unit = 0.7,
        adjust = 1.5, x = 0.3, row = 0.6, column = 0.8 }
    for _, name in ipairs(rule.state(o)) do states[name], env[name] = expr.var(name), 0 end
    for _, s in ipairs(rule.scalars and rule.scalars(o) or {}) do
        states[s[1]], env[s[1]] = expr.var(s[1]), s[2]
    end
    local arguments = { o, expr.var "w", expr.var "g", states, expr.var "lr", expr.var "t" }
    local lists = { rule.update(table.unpack(arguments)) }
    local before = rule.sums and rule.sums(table.unpack(arguments))
    if before then table.insert(lists, 1, before.statements) end
    for _, list in ipairs(lists) do
        for _, s in ipairs(list) do env[s[1]] = expr.evaluate(expr.lift(s[2]), env) end
    end
    return env
end

local function keeps_zero(rule, o, t)
    local env = updated(rule, o, t, 0)
    local zero = env.w == 0
    for _, name in ipairs(rule.state(o)) do zero = zero and env[name] == 0 end
    return zero
end

local function check_zero(rule, form)
    local said = rule.zero
    for number, setting in ipairs(require "catalog.catalog".settings(rule)) do
        local o, kept = setting[2], true
        if type(rule.zero) == "function" then said = rule.zero(o) end
        if rule.settle then assert(not rule.settle(o, "f64")) end
        for _, at in ipairs { 1, 2, 50 } do kept = kept and keeps_zero(form, o, at) end
        if said ~= kept then
            error(("%s, setting %d: zero is said to %s 0"):format(rule.name, number, said and "stay" or "leave"), 0)
        end
    end
end

tests[#tests + 1] = { "zero maps to zero only for rules that promise it", function()
    for _, rule in require "catalog.catalog".load().optimizers:each() do
        check_zero(rule, rule)
        if rule.matrix then check_zero(rule, rule.matrix) end
    end
end }

-- With on_nonfinite = "ignore" a non-finite gradient must show in the parameters.
tests[#tests + 1] = { "a NaN gradient gives a NaN parameter", function()
    for name, rule in require "catalog.catalog".load().optimizers:each() do
        -- rules with an iteration over matrices (start) are left out: it makes all elements of a matrix NaN
        for number, setting in ipairs(rule.start and {} or require "catalog.catalog".settings(rule)) do
            if rule.settle then assert(not rule.settle(setting[2], "f64")) end
            local w = updated(rule, setting[2], 2, 0 / 0).w
            if w == w then error(("%s, setting %d: %g"):format(name, number, w), 0) end
        end
    end
end }

return tests
