-- rate: the learning rate of an update, and the momentum where a schedule moves it, as functions of the
-- program. The same expressions are evaluated by `gagen lr`.
local expr = require "base.expr"
local metrics = require "spec.metrics"
local ordered = require "base.ordered"
local schedule = require "spec.schedule"
local statements = require "base.statements"
local text = require "base.text"

local rate = {}

--- How functions of doubles are called in C.
rate.CALL = { abs = "fabs", min = "fmin", max = "fmax" }

-- "if (a < b) return x;" for each choice that e begins with, then what is left.
local function add_returns(out, e, spelling)
    local function line(form, ...) out[#out + 1] = statements.broken("    ", form:format(...)) end
    local list = statements.split(e, "rate")
    for _, text_of_part in ipairs((statements.text(list, "double", spelling))) do line("%s", text_of_part) end
    local rest = statements.result(list)
    while rest.op == "where" do
        local condition = expr.text(rest[1], spelling)
        if condition:sub(1, 1) ~= "(" then condition = "(" .. condition .. ")" end
        line("if %s return %s;", condition, expr.text(rest[2], spelling))
        rest = rest[3]
    end
    line("return %s;", expr.text(rest, spelling))
end

-- The names of the functions of the recurrences in e by their rounds, and a list of { name, recurrence }.
local function recurrences_in(e)
    local names, list = {}, {}
    local function visit(x)
        local key = x.op == "recurrence" and expr.rounds_text(x)
        if key and not names[key] then
            names[key] = #list == 0 and x.name or ("%s_%d"):format(x.name, #list + 1)
            list[#list + 1] = { names[key], x }
        end
        for _, child in ipairs(x) do visit(child) end
    end
    visit(e)
    return names, list
end

-- The lines of one round of a recurrence, whose value is the variable `value` and whose number is `rounds`.
local function round_of(steps, value, rounds)
    local spelling = { call = rate.CALL, variable = function(v) return v == "x" and value or v end }
    local lines, reads_k = {}, false
    for i, step in ipairs(steps) do
        reads_k = reads_k or ordered.find(expr.variables(step), "k") ~= nil
        local word = i == 1 and "x" or ("x%d_"):format(i)
        local parts, last = statements.text(statements.split(step, value, word), "double", spelling)
        table.move(parts, 1, #parts, #lines + 1, lines)
        lines[#lines + 1] = ("%s = %s;"):format(value, last)
    end
    table.insert(lines, 1, reads_k and ("const double k = (double)++%s;"):format(rounds) or rounds .. "++;")
    return table.concat(ordered.collect(lines, function(line) return statements.broken("        ", line) end), "\n")
end

-- The function of a recurrence. Every update asks for one round more than the last.
local function rounds_of(name, e, spelled)
    local value, rounds = name .. "_value", name .. "_rounds"
    local doc = e.value.doc:gsub("^%l", string.upper)
    return table.concat({
        ("/* %s after n updates; goes on from the n of the call before. */"):format(doc),
        ("%s%s %s;"):format(spelled.kept, spelled.int64, rounds),
        ("%sdouble %s;"):format(spelled.kept, value), "",
        ("%sdouble %s(%s n) {"):format(spelled.helper, name, spelled.int64),
        ("    if (%s == 0 || n < %s) {"):format(rounds, rounds),
        ("        %s = 0;"):format(rounds),
        ("        %s = %s;"):format(value, expr.plain_text(e[2])),
        "    }",
        ("    while (%s < n) {"):format(rounds),
        round_of(e.value.steps, value, rounds),
        "    }",
        ("    return %s;"):format(value),
        "}", "" }, "\n")
end

-- The text of one function: `head` opens it, `names` says how t, total and more are spelled before it.
local function function_of(comment, head, e, config, spelled)
    local out, uses = {}, {}
    local names, recurrences = recurrences_in(e)
    for _, name in ipairs(expr.variables(e)) do uses[name] = true end
    for i, entry in ipairs(recurrences) do out[i] = rounds_of(entry[1], entry[2], spelled) end
    if comment then out[#out + 1] = comment end
    out[#out + 1] = head .. " {"
    if uses.t and config.schedule.fields.by == "epoch" then
        out[#out + 1] = ("    const %s epoch = (cycle%s - %sepoch_shift) / %sepoch_cycles;"):format(spelled.int64,
            config.epoch_times > 1 and " * " .. config.epoch_times or "", spelled.model, spelled.model)
    end
    if uses.total then out[#out + 1] = ("    const double total = %s;"):format(spelled.total) end
    for _, name in ipairs(spelled.unused) do
        local used = name == spelled.unused[#spelled.unused] and uses.t
            or name == "m" and (uses.total or uses.plateau_rate or uses.t and config.schedule.fields.by == "epoch")
        if not used and spelled.says_unused then out[#out + 1] = ("    (void)%s;"):format(name) end
    end
    local count = config.schedule.fields.by == "epoch" and "epoch" or "t"
    local spelling = { call = rate.CALL, variable = function(v)
        if v == "t" then return "(double)" .. count end
        return (v == "total" or v:find "^x%d+$") and v or spelled.numbers .. v
    end }
    function spelling.recurrence(r)
        local n = r[1].op == "var" and r[1].name == "t" and count
            or ("(%s)(%s)"):format(spelled.int64, expr.text(r[1], spelling))
        return ("%s(%s)"):format(names[expr.rounds_text(r)], n)
    end
    add_returns(out, e, spelling)
    out[#out + 1] = "}"
    return table.concat(out, "\n")
end

-- The argument of the functions: how many updates are done, or cycles where epochs count.
local function argument(config) return config.schedule.fields.by == "epoch" and "cycle" or "t" end

local function comment_of(config)
    return ("/* %s, from %s */"):format(config.schedule.rule.name, text.comment(config.schedule.at).text)
end

--- The functions of the rate, and of the momentum where the schedule moves it.
function rate.functions(config, target)
    local e, momentum = schedule.expressions(config)
    local spelled = target.rate_spelling(config, argument(config))
    local out = { function_of(comment_of(config), spelled.lr, e, config, spelled) }
    if momentum then out[2] = "\n" .. function_of(nil, spelled.momentum, momentum, config, spelled) end
    return text.block(table.concat(out, "\n"))
end

--- The lines of decide() that set the rate; `reads_t`: whether what follows needs the updates done.
function rate.lines(config, reads_t, target)
    local f = config.schedule.fields
    local lines, hold = {}, f.by ~= "epoch" and f.on_skip ~= "advance"
    local at = hold and "t" or target.cycles
    if hold or reads_t then
        lines[1] = ("const %s t = %s; /* updates done */"):format(target.int64, target.updates)
    end
    lines[#lines + 1] = ("s->lr = %s;"):format(target.rate(config, "lr", at))
    if schedule.moves_momentum(config) then
        lines[#lines + 1] = ("s->momentum = %s;"):format(target.rate(config, "momentum", at))
    end
    return text.block(table.concat(lines, "\n"))
end

--- The fields of the struct step beside the rate, { name, comment }: doubles.
function rate.fields(config)
    local list = {}
    if schedule.moves_momentum(config) then list[1] = { "momentum", "or beta1, of the update" } end
    if config.schedule.rule.plateau then
        list[#list + 1] = { "plateau_rate", "the rate that evaluations have led to" }
        list[#list + 1] = { "plateau_best", "the best metric" }
        list[#list + 1] = { "plateau_bad", "metrics in a row that were no better" }
        list[#list + 1] = { "plateau_rest", "metrics still to be let pass" }
    end
    return list
end

--- The numbers that a schedule keeps: { field, initial }, a number or C text.
function rate.numbers(config)
    if not config.schedule.rule.plateau then return {} end
    return { { field = "plateau_rate", initial = config.optimizer.fields.lr },
        { field = "plateau_best", initial = rate.more(config) and "-INFINITY" or "INFINITY" },
        { field = "plateau_bad", initial = 0.0 }, { field = "plateau_rest", initial = 0.0 } }
end

--- Whether a greater metric is a better one.
function rate.more(config)
    local f = config.schedule.fields
    if f.mode then return f.mode == "max" end
    return metrics.better(config, f.metric) == "higher"
end

--- The settings of runtime/loop/plateau.h, or nothing.
function rate.plateau(config)
    local f = config.schedule.fields
    if not config.schedule.rule.plateau then return text.block("") end
    local function number(x) return expr.literal(x, "f64") end
    return text.block((".more = %s, .absolute = %s, .factor = %s, .threshold = %s,\n"):format(rate.more(config),
            f.threshold_mode == "abs", number(f.factor), number(f.threshold))
        .. ("        .min_rate = %s, .eps = %s, .patience = %d, .cooldown = %d"):format(number(f.min_lr),
            number(f.eps), f.patience, f.cooldown))
end

return rate
