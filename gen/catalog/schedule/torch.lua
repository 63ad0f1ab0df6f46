-- torch: the schedules of torch.optim.lr_scheduler as closed forms, with their arguments and defaults. t counts
-- the updates done. The warm-up of some of them is an addition. The chainable ones have a `step` too: the rate
-- of update k + 1 from x, that of update k; and `first`, the factor of the first rate, if it is not 1.
local common = require "catalog.schedule_common"

local function number(name, default, doc, more)
    local f = { name = name, type = "num", default = default, doc = doc }
    for key, value in ordered.each(more or {}) do f[key] = value end
    return f
end

schedule "step" {
    doc = "base gamma^floor(t / step_size): StepLR",
    fields = { common.warmup, { name = "step_size", type = "int", default = 1, min = 1, doc = "length of a step" },
        number("gamma", 0.1, "the factor of a step", { min = 0 }) },
    factor = function(f, t, _, base) return base * pow(f.gamma, floor(t / f.step_size)) end,
    step = function(f, k, x) return where(eq(k, f.step_size * floor(k / f.step_size)), x * f.gamma, x) end,
}

schedule "multistep" {
    doc = "base gamma^(milestones that are reached): MultiStepLR; milestones count from the beginning, a warm-up "
        .. "included: MultiStepWarmupLR",
    fields = { common.warmup, { name = "milestones", type = "list", required = true, doc = "ascending" },
        number("gamma", 0.1, "the factor of a milestone", { min = 0 }) },
    example = 'schedule { "multistep", milestones = { 30, 60 } }',
    compat = { drop_milestones = "milestones inside the warm-up are left out, as Colossal-AI does" },
    check = function(f)
        if #f.milestones == 0 then return "milestones is empty" end
        for i, m in ipairs(f.milestones) do
            if math.type(m) ~= "integer" and not (type(m) == "number" and math.tointeger(m)) then
                return "each of milestones is expected to be a whole number"
            end
            if m < (f.milestones[i - 1] or 0) then return "milestones are expected in ascending order" end
        end
    end,
    check_warmup = function(f, warmup)
        if not f.compat.drop_milestones and warmup > 0 and f.milestones[1] < warmup then
            return ("the milestone %d lies inside the warm-up of %d: a later one, or compat = "
                .. "{ \"drop_milestones\" }"):format(f.milestones[1], warmup)
        end
    end,
    factor = function(f, t, _, base)
        local reached = expr.lift(0)
        for _, m in ipairs(f.milestones) do
            local behind = m - f.warmup_length
            local counts = not expr.is(behind) and (behind >= 0 and 1 or 0)
                or f.compat.drop_milestones and where(ge(behind, 0), 1, 0) or 1
            if counts ~= 0 then reached = reached + where(ge(t, behind), counts, 0) end
        end
        return base * pow(f.gamma, reached)
    end,
    step = function(f, k, x)
        for _, m in ipairs(f.milestones) do x = where(eq(k, m), x * f.gamma, x) end
        return x
    end,
}

schedule "exponential" {
    doc = "base gamma^t: ExponentialLR; MultiplicativeLR with a constant",
    fields = { common.warmup, number("gamma", 1, "the factor of each update", { min = 0 }) },
    factor = function(f, t, _, base) return base * pow(f.gamma, t) end,
    step = function(f, _, x) return x * f.gamma end,
}

schedule "constant_lr" {
    doc = "base factor for total_iters updates, then base: ConstantLR",
    fields = { number("factor", 1 / 3, "of the base rate", { min = 0, max = 1 }),
        { name = "total_iters", type = "int", default = 5, min = 0, doc = "how long" } },
    factor = function(f, t, _, base) return where(lt(t, f.total_iters), base * f.factor, base) end,
    check_step = function(f) return f.factor == 0 and "factor is 0, expected more: the chain divides by it" or nil end,
    first = function(f) return f.factor end,
    step = function(f, k, x) return where(eq(k, f.total_iters), x / f.factor, x) end,
}

schedule "linear_lr" {
    doc = "base (start_factor + (end_factor - start_factor) min(t, total_iters) / total_iters): LinearLR",
    fields = { number("start_factor", 1 / 3, "at the beginning", { above = 0, max = 1 }),
        number("end_factor", 1, "from total_iters on", { min = 0, max = 1 }),
        { name = "total_iters", type = "int", default = 5, min = 1, doc = "how long" } },
    factor = function(f, t, _, base)
        return base * common.between("linear", f.start_factor, f.end_factor, common.part(t, f.total_iters))
    end,
    first = function(f) return f.start_factor end,
    step = function(f, k, x)
        local rise = f.end_factor - f.start_factor
        return where(le(k, f.total_iters), x * (1 + rise / (f.total_iters * f.start_factor + (k - 1) * rise)), x)
    end,
}

schedule "polynomial_lr" {
    doc = "base (1 - min(t, total_iters) / total_iters)^power: PolynomialLR",
    fields = { { name = "total_iters", type = "int", default = 5, min = 1, doc = "how long" },
        number("power", 1, "the exponent", { above = 0 }) },
    factor = function(f, t, _, base) return base * pow(1 - common.part(t, f.total_iters), f.power) end,
    step = function(f, k, x)
        return where(le(k, f.total_iters),
            x * pow((1 - k / f.total_iters) / (1 - (k - 1) / f.total_iters), f.power), x)
    end,
}

schedule "cosine_annealing" {
    doc = "eta_min + (base - eta_min) (1 + cos(pi t / T_max)) / 2, rising again past T_max: CosineAnnealingLR",
    fields = { { name = "T_max", type = "int", min = 1, doc = "half a wave; default: the run's length" },
        common.eta_min() },
    factor = function(f, t, total, base)
        return common.between("cos", base, f.eta_min, t / (f.T_max or total))
    end,
    check_step = function(f) return not f.T_max and "T_max is missing, expected the length of half a wave" or nil end,
    -- one step past T_max there is nothing left to multiply
    step = function(f, k, x, base)
        local T, past = f.T_max, k - (f.T_max + 1)
        local function height(t) return 1 + cos(math.pi * t / T) end
        return where(eq(past, 2 * T * floor(past / (2 * T))), x + (base - f.eta_min) * (1 - math.cos(math.pi / T)) / 2,
            f.eta_min + (x - f.eta_min) * height(k) / height(k - 1))
    end,
}

schedule "cosine_annealing_warm_restarts" {
    doc = "half waves from base to eta_min, T_0 long and each T_mult times the one before: CosineAnnealingWarmRestarts",
    fields = { { name = "T_0", type = "int", required = true, min = 1, doc = "length of the first" },
        { name = "T_mult", type = "int", default = 1, min = 1, doc = "factor of the next" }, common.eta_min() },
    factor = function(f, t, _, base)
        local now, length = t - f.T_0 * floor(t / f.T_0), f.T_0
        if f.T_mult > 1 then
            local grown = t / f.T_0 * (f.T_mult - 1) + 1
            local power = pow(f.T_mult, floor(log(grown) / math.log(f.T_mult) + 1e-9))
            now, length = t - f.T_0 * (power - 1) / (f.T_mult - 1), f.T_0 * power
        end
        return common.between("cos", base, f.eta_min, now / length)
    end,
}

-- The number of the cycle that t lies in, from 1, and the height in that cycle: 0 up to 1 and back to 0.
local function cycle(f, t)
    local down = f.step_size_down or f.step_size_up
    local whole = f.step_size_up + down
    local number_of = floor(1 + t / whole)
    local x, ratio = 1 + t / whole - number_of, f.step_size_up / whole
    return number_of, where(le(x, ratio), x / ratio, (x - 1) / (ratio - 1))
end

-- The height of the peak of a cycle.
local function peak_height(f, t, number_of)
    if f.mode == "triangular" then return 1 end
    return f.mode == "triangular2" and pow(2, 1 - number_of) or pow(f.gamma, t)
end

schedule "cyclic" {
    doc = "from base_lr up to max_lr in step_size_up and back in step_size_down, again and again: CyclicLR",
    fields = { number("base_lr", nil, "the lowest rate; default: the optimizer's lr", { min = 0 }),
        number("max_lr", nil, "the highest rate", { required = true, min = 0 }),
        { name = "step_size_up", type = "int", default = 2000, min = 1, doc = "updates upwards" },
        { name = "step_size_down", type = "int", min = 1, doc = "updates downwards; default: as upwards" },
        { name = "mode", type = "str", default = "triangular", values = { "triangular", "triangular2", "exp_range" },
            doc = "all peaks the same, halved each time, or lower by gamma^t" },
        number("gamma", 1, "of exp_range", { above = 0 }), common.momentum(0.8, 0.9) },
    factor = function(f, t, _, base)
        local number_of, height = cycle(f, t)
        local low = f.base_lr or base
        return low + (f.max_lr - low) * height * peak_height(f, t, number_of)
    end,
    momentum = function(f, t)
        if not f.cycle_momentum then return nil end
        local number_of, height = cycle(f, t)
        return f.max_momentum - (f.max_momentum - f.base_momentum) * height * peak_height(f, t, number_of)
    end,
}

-- The value at t of phases { end, from, to }, each of which begins at the end of the previous one. After the last
-- one its final value holds.
local function phased(form, t, phases)
    local value
    for i = #phases, 1, -1 do
        local start, phase = i > 1 and phases[i - 1][1] or 0, phases[i]
        local length = i > 1 and phase[1] - start or max(phase[1], 1)     -- at least t = 0 itself
        local p = i == #phases and min((t - start) / length, 1) or (t - start) / length
        local here = common.between(form, phase[2], phase[3], p)
        value = value and where(le(t, phase[1]), here, value) or here
    end
    return value
end

-- A one-cycle schedule: first -> peak -> (first ->) last.
local function one_cycle(f, t, total, first, peak, last)
    local rise = f.pct_start * total - 1
    local phases = { { rise, first, peak }, { total - 1, peak, last } }
    if f.three_phase then
        phases = { phases[1], { 2 * f.pct_start * total - 2, peak, first }, { total - 1, first, last } }
    end
    return phased(f.anneal_strategy, t, phases)
end

schedule "onecycle" {
    doc = "from max_lr / div_factor up to max_lr over pct_start, then down to that over final_div_factor: OneCycleLR",
    fields = { number("max_lr", nil, "the peak; default: the optimizer's lr", { min = 0 }), common.total,
        number("pct_start", 0.3, "the part that rises", { min = 0, max = 1 }),
        { name = "anneal_strategy", type = "str", default = "cos", values = { "cos", "linear" }, doc = "the form" },
        number("div_factor", 25, "peak over first", { above = 0 }),
        number("final_div_factor", 1e4, "first over last", { above = 0 }),
        { name = "three_phase", type = "bool", default = false, doc = "down to the first rate as it rose, then on" },
        common.momentum(0.85, 0.95) },
    factor = function(f, t, total, base)
        local peak = f.max_lr or base
        local first = peak / f.div_factor
        return one_cycle(f, t, total, first, peak, first / f.final_div_factor)
    end,
    momentum = function(f, t, total)
        if not f.cycle_momentum then return nil end
        return one_cycle(f, t, total, f.max_momentum, f.base_momentum, f.max_momentum)
    end,
}

-- An expression, or its value where it has no variables.
local function settled(e)
    e = expr.lift(e)
    return #expr.variables(e) == 0 and expr.lift(expr.evaluate(e, {})) or e
end

-- The rate of swa at t, from the rate `base` at t = 0.
local function annealed(f, t, base)
    if f.anneal_epochs == 0 then return expr.lift(f.swa_lr) end
    return common.between(f.anneal_strategy, base, f.swa_lr, common.part(t, f.anneal_epochs))
end

schedule "swa" {
    doc = "from base, in a sequence from the last rate before it, to swa_lr over anneal_epochs, which then holds: "
        .. "SWALR; { \"swa\", { name, field = value }, swa_start = n, ... } is the loop of torch's documentation: the "
        .. "schedule up to t = n + 1, then from its rate there",
    continues = true,
    fields = { { name = "stages", type = "table", rest = true, doc = "the schedule before it, with swa_start" },
        number("swa_lr", nil, "the last rate", { required = true, min = 0 }),
        { name = "swa_start", type = "int", min = 0, max = 2147483647,
            doc = "the last t behind which the schedule before it makes a step" },
        { name = "anneal_epochs", type = "int", default = 10, min = 0, doc = "how long" },
        { name = "anneal_strategy", type = "str", default = "cos", values = { "cos", "linear" }, doc = "the form" } },
    check = function(f)
        if (f.stages ~= nil) ~= (f.swa_start ~= nil) then
            return ("%s without %s: expected both, such as { \"swa\", { \"cosine\" }, swa_start = 160, ... }"):format(
                f.stages and "a schedule" or "swa_start", f.stages and "swa_start" or "the schedule before it")
        end
        if f.stages and #f.stages > 1 then
            return ("%d schedules, expected the one before swa_start"):format(#f.stages)
        end
    end,
    factor = function(f, t, total, base)
        if not f.stages then return annealed(f, t, base) end
        local start, before = f.swa_start + 1, f.play[1]
        local last = settled(before(expr.lift(start), total, base))
        return where(le(t, start), before(t, total, base), annealed(f, t - start, last))
    end,
}

local STAGES = { name = "stages", type = "table", rest = true, required = true,
    doc = "{ name, field = value }: a schedule" }

-- The base rate of each stage of a sequence: the common one, or the previous stage's last rate if it continues it.
local function bases_of(f, from, base)
    local bases = { base }
    for i = 2, #from do
        local length = from[i] - from[i - 1]
        bases[i] = f.continues[i] and settled(f.play[i - 1](expr.lift(length - 1), length, bases[i - 1])) or base
    end
    return bases
end

schedule "sequential" {
    doc = "one schedule after the other, each from its own t = 0: SequentialLR",
    fields = { STAGES, { name = "milestones", type = "list", required = true,
        doc = "where each but the first begins" } },
    example = 'schedule { "sequential", { "linear_lr" }, { "cosine" }, milestones = { 5 } }',
    check = function(f)
        if #f.milestones ~= #f.stages - 1 then
            return ("%d schedules need %d milestones, %d are given"):format(#f.stages, #f.stages - 1, #f.milestones)
        end
        for i, m in ipairs(f.milestones) do
            if type(m) ~= "number" or not math.tointeger(m) or m <= (f.milestones[i - 1] or 0) then
                return "milestones are expected to be whole numbers above 0 in ascending order"
            end
        end
    end,
    -- f.play[i](t, total, base) is the rate of stage i, whose total is the distance to the next milestone
    factor = function(f, t, total, base)
        local from, rate = { 0, table.unpack(f.milestones) }, nil
        local bases = bases_of(f, from, base)
        for i = #from, 1, -1 do
            local length = (from[i + 1] or total) - from[i]
            local here = f.play[i](from[i] == 0 and t or t - from[i], length, bases[i])
            rate = rate and where(lt(t, from[i + 1]), here, rate) or here
        end
        return rate
    end,
}

-- The rate of stages that make one step each from update to update.
local function chain_of(stages, t, base)
    local start, steps = base, {}
    for i, stage in ipairs(stages) do
        local rule, f = stage.rule, stage.fields
        if rule.first then start = start * rule.first(f) end
        steps[i] = rule.step(f, expr.var "k", expr.var "x", base)
    end
    return expr.recurrence("chained", "the rate of the chained schedules", t, start, steps)
end

schedule "chained" {
    doc = "the factors of several schedules multiplied, or, beside cosine_annealing with eta_min, their steps one "
        .. "after the other: ChainedScheduler",
    fields = { STAGES },
    example = 'schedule { "chained", { "constant_lr" }, { "exponential", gamma = 0.99 } }',
    chains = true,
    factor = function(f, t, total, base)
        if f.steps then return chain_of(f.steps, t, base) end
        local rate = base
        for _, play in ipairs(f.play) do rate = rate * play(t, total, expr.lift(1)) end
        return rate
    end,
}

schedule "plateau" {
    doc = "the rate times `factor` when `patience` evaluations in a row were not better than the best by `threshold`: "
        .. "ReduceLROnPlateau; what it keeps is saved",
    fields = {
        { name = "metric", type = "str", default = "loss", values = { "loss", "accuracy" },
            doc = "of the evaluations" },
        { name = "mode", type = "str", values = { "min", "max" },
            doc = "better is less, or more; default: as the metric" },
        number("factor", 0.1, "of the rate", { above = 0, below = 1 }),
        { name = "patience", type = "int", default = 10, min = 0, max = 2147483647,
            doc = "evaluations without progress before the rate is reduced" },
        number("threshold", 1e-4, "what counts as progress", { min = 0 }),
        { name = "threshold_mode", type = "str", default = "rel", values = { "rel", "abs" },
            doc = "a part of the best, or a difference" },
        { name = "cooldown", type = "int", default = 0, min = 0, max = 2147483647,
            doc = "evaluations ignored after a reduction" },
        number("min_lr", 0, "the rate is never less", { min = 0 }),
        number("eps", 1e-8, "a smaller change is not made", { min = 0 }),
    },
    plateau = true,
    factor = function() return expr.var "plateau_rate" end,
}
