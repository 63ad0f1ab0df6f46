-- schedule: the word `schedule` as expressions: the rate of an update, and the momentum if the schedule moves it, of
-- the updates (or epochs) done and the length of the run. A schedule may have stages, or be a function.
local check = require "base.check"
local diag = require "base.diag"
local expr = require "base.expr"
local ordered = require "base.ordered"
local traced = require "spec.traced"

local schedule = {}

-- Replaces compat = { "name", ... } by a set; refuses names that the rule does not have.
local function set_compat(entry)
    local rule, fields, known = entry.rule, entry.fields, ordered.copy(entry.rule.compat or {})
    for _, f in ipairs(rule.fields) do
        if f.name == "warmup" and not rule.ramp then known.warmup_from_zero = true end
    end
    local names, set = ordered.keys(known), {}
    for _, name in ipairs(fields.compat or {}) do
        if type(name) ~= "string" or not known[name] then
            diag.fail(entry.where.locate("compat"), ("%s: compat has %s, expected %s"):format(entry.where.what,
                type(name) == "string" and "'" .. name .. "'" or "a " .. type(name),
                #names > 0 and table.concat(names, ", ") or "nothing: it has no such switches"),
                { hint = type(name) == "string" and diag.suggest(name, names) or nil })
        end
        set[name] = true
    end
    fields.compat = set
end

-- Sets f.warmup_length, in updates or epochs, given the `length` of the schedule; and f.warmup_part, the fraction, if
-- the length is only known at run time.
local function set_warmup(entry, length, unit)
    local f, where = entry.fields, entry.where
    local warmup = f.warmup or 0
    if warmup > 0 and warmup < 1 then warmup = math.floor(warmup * length + 0.5) end
    local whole = math.tointeger(warmup)
    if not whole then
        diag.fail(where.locate("warmup"), ("%s: warmup is %g, expected an integer or a fraction below 1"):format(
            where.what, warmup), {})
    end
    f.warmup_length = whole
    f.warmup_part = entry.open and not f.total and (f.warmup or 0) < 1 and f.warmup or nil
    if whole > 0 and whole >= length then
        diag.fail(where.locate("warmup"), ("%s: warmup is %d, expected less than the %d %s of the schedule"):format(
            where.what, whole, length, unit), {})
    end
    local complaint = entry.rule.check_warmup and entry.rule.check_warmup(f, whole, length)
    if complaint then diag.fail(entry.at, where.what .. ": " .. complaint, {}) end
end

-- The name of stage i.
local function stage_name(entry, i, args)
    if type(args) ~= "table" or type(args[1]) ~= "string" then
        diag.fail(entry.at, ("%s: stage %d is %s, expected { name, field = value }"):format(entry.where.what, i,
            type(args) == "table" and "without a name" or "a " .. type(args)), {})
    end
    return args[1]
end

-- Stage i of a schedule that has stages, as an entry. open: its length depends on the length of the run.
local function stage(c, registry, entry, i, args, length, unit, open)
    local name = stage_name(entry, i, args)
    if not registry:has(name) or registry:get(name).plateau then
        diag.fail(entry.at, ("%s: stage %d: '%s' is unknown, expected one of %s"):format(entry.where.what, i, name,
            table.concat(registry.keys, ", ")), { found = name, hint = diag.suggest(name, registry.keys) })
    end
    local rule, rest = registry:get(name), ordered.copy(args)
    table.remove(rest, 1)
    local where = check.context(("%s: stage %d, '%s'"):format(entry.where.what, i, name), entry.at)
    local schema = table.move(rule.fields, 1, #rule.fields, 1, {})
    schema[#schema + 1] = { name = "compat", type = "list", default = {} }
    local made = { rule = rule, fields = check.fields(schema, rest, where), at = entry.at, where = where,
        open = open }
    if made.fields.cycle_momentum then
        diag.fail(entry.at, where.what .. ": moves no momentum as a stage, expected cycle_momentum = false", {})
    end
    schedule.prepare(c, registry, made, length, unit)
    return made
end

-- Whether a stage is a factor of the base rate: twice the base gives twice the rate.
local function is_proportional(made)
    for _, t in ipairs { 0, 1, 7, 1000, 1999 } do
        local function rate(base) return expr.evaluate(expr.lift(schedule.play(made, expr.lift(t), expr.lift(2000),
            expr.lift(base))), {}) end
        if math.abs(rate(2.0) - 2 * rate(1.0)) > 1e-12 * math.abs(rate(2.0)) then return false end
    end
    return true
end

-- Sets f.steps, the stages of a chain, if one is no factor of the base rate; refuses stages without a step.
local function set_steps(registry, entry, stages)
    local own = ordered.collect(stages, function(made) return not is_proportional(made) and made or nil end)[1]
    if not own then return end
    local function refuse(made, complaint) diag.fail(entry.at, made.where.what .. ": " .. complaint, {}) end
    if not own.rule.step then
        refuse(own, ("'%s' has a rate of its own, expected stages that are factors of the base rate"):format(
            own.rule.name))
    end
    local names = ordered.collect(registry.keys, function(name) return registry:get(name).step and name or nil end)
    for _, made in ipairs(stages) do
        if not made.rule.step or made.fields.warmup_length > 0 then
            refuse(made, ("'%s'%s cannot be chained with '%s', which has a rate of its own: expected one of %s, "
                .. "without a warm-up"):format(made.rule.name, made.rule.step and " with a warm-up" or "",
                own.rule.name, table.concat(names, ", ")))
        end
        local complaint = made.rule.check_step and made.rule.check_step(made.fields)
        if complaint then refuse(made, complaint) end
    end
    entry.fields.steps = stages
end

-- Warns if the last rate is above the base rate, which a default may cause unnoticed.
local function warn_of_rising(c, entry)
    for _, name in ipairs { "min", "eta_min", "end_lr" } do
        local last, base = entry.fields[name], c.optimizer.fields.lr
        if last and last > base then
            diag.warn(entry.where.locate(name), ("%s: %s is %g, more than the optimizer's lr, %g: the rate rises")
                :format(entry.where.what, name, last, base))
        end
    end
end

--- Completes an entry { rule, fields, at, where, open }: its compat switches, warm-up and stages. open: the length of
--- the run depends on the number of ranks, which is only known when the program starts.
function schedule.prepare(c, registry, entry, length, unit)
    local f, rule = entry.fields, entry.rule
    local complaint = rule.check and rule.check(f)
    if complaint then diag.fail(entry.at, ("%s: %s"):format(entry.where.what, complaint), {}) end
    set_compat(entry)
    set_warmup(entry, f.total or length, unit)
    warn_of_rising(c, entry)
    if not f.stages then return end
    local stages = {}
    f.play, f.continues = {}, {}
    for i, args in ipairs(f.stages) do
        local own, open = length, entry.open
        if f.milestones then
            own, open = (f.milestones[i] or length) - (f.milestones[i - 1] or 0), open and not f.milestones[i]
        end
        local made = stage(c, registry, entry, i, args, own, unit, open)
        f.continues[i] = made.rule.continues and not made.fields.stages or false
        f.play[i] = function(t, total, base) return schedule.play(made, t, total, base) end
        stages[i] = made
    end
    if rule.chains then set_steps(registry, entry, stages) end
end

--- The rate of an entry as an expression of t, the total length and the base rate.
function schedule.play(entry, t, total, base)
    local rule, f = entry.rule, entry.fields
    local warmup, length = f.warmup_length, f.total or total
    if f.warmup_part then
        warmup = expr.floor(length * f.warmup_part + 0.5)
        f = ordered.copy(f, { warmup_length = warmup })
    end
    if warmup == 0 then return expr.lift(rule.factor(f, t, length, base)) end
    local ramp
    if rule.ramp then
        ramp = rule.ramp(f, t, warmup, base)
    else
        ramp = base * ((f.compat.warmup_from_zero and t or t + 1) / warmup)
    end
    return expr.where(expr.lt(t, warmup), ramp, rule.factor(f, t - warmup, length - warmup, base))
end

-- The epochs of a run, including one that is only begun.
local function epochs_of(c)
    if c.train.epochs then return math.ceil(c.train.epochs) end
    return (c.cycles * c.epoch_times + c.epoch_cycles - 1) // c.epoch_cycles
end

--- The default length of a schedule: the epochs or updates of the run.
function schedule.length(c) return c.schedule.fields.by == "epoch" and epochs_of(c) or c.cycles end

-- auto_lr: scales the base rate by the rows of an update over base_rows.
local function scale_rate(c)
    local f = c.schedule.fields
    if (f.auto_lr ~= "none") ~= (f.base_rows ~= nil) then
        diag.fail(c.schedule.at, "schedule: auto_lr and base_rows belong together: the rows of an update that "
            .. "the optimizer's lr is meant for", {})
    end
    if f.auto_lr == "none" then return end
    if c.mode.ranks and not c.ranks_required then
        diag.fail(c.schedule.at, "schedule: auto_lr needs to know the ranks: parallel { ..., ranks = n }", {})
    end
    if #c.table > 1 then
        diag.fail(c.schedule.at, "schedule: auto_lr needs one accumulate for all cycles: with accumulate.later the "
            .. "rows of an update change", {})
    end
    local ratio = c.batch * c.accumulate * c.ranks / f.base_rows
    if f.auto_lr == "sqrt" then ratio = math.sqrt(ratio) end
    c.optimizer.fields.lr = c.optimizer.fields.lr * ratio
end

-- Refuses auto_lr for a schedule that does not depend on the base rate.
local function check_scaled(c)
    local entry = c.schedule
    if entry.fields.auto_lr == "none" or entry.rule.plateau then return end
    local rate = schedule.play(entry, expr.var "t", expr.var "total", expr.var "base")
    if not ordered.find(expr.variables(rate), "base") then
        diag.fail(entry.at, "schedule: auto_lr changes the optimizer's lr, on which this schedule does not depend: "
            .. "expected one that does", {})
    end
end

-- Whether the length of the schedule depends on the number of ranks while that is not given.
local function is_open(c)
    local counts_epochs, gives_epochs = c.schedule.fields.by == "epoch", c.train.epochs ~= nil
    return c.mode.ranks and not c.ranks_required and counts_epochs ~= gives_epochs
end

-- Refuses by = "epoch" if epochs differ in length or have none.
local function check_epochs(c)
    if c.schedule.fields.by == "epoch" and #c.table > 1 then
        diag.fail(c.schedule.at, "schedule: by = \"epoch\" needs one accumulate for all cycles", {})
    end
    if c.schedule.fields.by == "epoch" and c.data.stream then
        diag.fail(c.schedule.at, "schedule: by = \"epoch\": the length of a stream is not known, expected "
            .. "by = \"update\"", {})
    end
end

-- Updates, besides the last, for which a function of the spec is checked to give a finite rate.
local CHECKED = 1000

local function check_function(c)
    local entry = c.schedule
    if not entry.rule.traced then return end
    local rate = schedule.expressions(c)
    local function check(t)
        local value = expr.evaluate(rate, { t = t, total = entry.total })
        if value ~= value or value == math.huge or value == -math.huge then
            diag.fail(entry.at, ("schedule: the function gives %s for t = %d, expected a finite number"):format(value,
                t), {})
        end
    end
    for t = 0, math.min(entry.total, CHECKED) - 1 do check(t) end
    check(entry.total - 1)
end

--- Checks and completes c.schedule, the entry of the word.
function schedule.read(c, registry)
    local entry = c.schedule
    if entry.fields.product and not entry.rule.traced then
        diag.fail(entry.where.locate("product"), ("%s: product is for a function: schedule { function(t) return "
            .. "0.95 end, product = true }"):format(entry.where.what), {})
    end
    check_epochs(c)
    scale_rate(c)
    local length = schedule.length(c)
    local unit = entry.fields.by == "epoch" and "epochs" or "updates"
    entry.open = is_open(c)
    schedule.prepare(c, registry, entry, length, unit)
    check_scaled(c)
    local total = entry.fields.total
    if total and total < length then
        diag.warn(entry.at, ("schedule: total is %d, training has %d %s: the last %d use the last rate"):format(
            total, length, unit, length - total))
    end
    if entry.rule.momentum and entry.fields.cycle_momentum and not c.optimizer.rule.cycled then
        diag.fail(entry.at, ("%s moves the momentum, but '%s' has none: cycle_momentum = false"):format(
            entry.where.what, c.optimizer.rule.name), {})
    end
    local cycled = entry.rule.momentum and entry.fields.cycle_momentum and c.optimizer.rule.cycled
    if cycled == "momentum" and c.optimizer.fields.momentum == 0 then
        diag.fail(entry.at, entry.where.what .. " moves the momentum, but the optimizer's is 0: "
            .. "cycle_momentum = false, or a momentum", {})
    end
    if entry.rule.plateau and not c.eval then
        diag.fail(entry.at, entry.where.what .. " looks at evaluations: the word eval is missing", {})
    end
    if entry.rule.plateau and entry.fields.metric == "accuracy"
        and not (c.eval and ordered.find(c.eval.metrics, "accuracy")) then
        diag.fail(entry.where.locate("metric"), entry.where.what .. " looks at the accuracy, which eval does not "
            .. "measure: metrics = { \"loss\", \"accuracy\" }", {})
    end
    entry.total = total or length
    check_function(c)
end

--- The rate, and the momentum or nil, as expressions of t and total.
function schedule.expressions(c)
    local entry = c.schedule
    local t, total = expr.var "t", expr.var "total"
    local rate = schedule.play(entry, t, total, expr.lift(c.optimizer.fields.lr))
    local momentum = entry.rule.momentum and entry.rule.momentum(entry.fields, t, entry.fields.total or total)
    return rate, momentum and expr.lift(momentum)
end

--- Whether the schedule moves the momentum.
function schedule.moves_momentum(c)
    local _, momentum = schedule.expressions(c)
    return momentum ~= nil
end

--- The fields of a rule or group, where the schedule moves the momentum with the variable `momentum` in its place.
--- The momentum of a rest without one stays 0. momentum_vanishes: whether the schedule moves it to 0 itself.
function schedule.with_momentum(c, rule, fields)
    local name = rule.cycled
    if not name or not schedule.moves_momentum(c) or fields.momentum == 0 then return fields end
    if name == "momentum" then
        local moved = c.schedule.fields
        return ordered.copy(fields, { momentum = expr.var "momentum",
            momentum_vanishes = moved.base_momentum == 0 or moved.max_momentum == 0 })
    end
    local betas = ordered.copy(fields[name])
    betas[1] = expr.var "momentum"
    return ordered.copy(fields, { [name] = betas })
end

--- The `t` of the rate of cycle number `cycle`: the updates done, or the number of the epoch, from 0.
function schedule.time(c, cycle)
    if c.schedule.fields.by ~= "epoch" then return cycle end
    return cycle * c.epoch_times // c.epoch_cycles
end

-- === a function of the spec =====================================================================

--- A function of the spec, whose events begin at number `first`, as a rule without fields. product: its values are
--- factors of the previous rate.
function schedule.traced(events, first, catalog, at, product)
    local result = traced("schedule", { "t", "base" }, events, first, catalog, at)
    if product and ordered.find(expr.variables(result), "base") then
        diag.fail(at, "schedule: with product = true the function gives factors: expected one of t alone", {})
    end
    return { name = "function", doc = "of the spec", fields = {}, traced = true, factor = function(_, t, _, base)
        if product then
            return base * expr.recurrence("factors", "the product of the spec's factors", t, 1.0,
                { expr.var "x" * expr.substitute(result, { t = expr.var "k" }) })
        end
        return expr.substitute(result, { t = t, base = base })
    end }
end

return schedule
