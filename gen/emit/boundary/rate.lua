-- rate: the learning rate of an update, and the momentum where a schedule moves it, as functions of the
-- program. The same expressions are evaluated by `gagen lr`.
local expr = require "base.expr"
local readable = require "emit.boundary.readable"
local schedule = require "spec.schedule"
local text = require "base.text"

local rate = {}

--- How functions of doubles are called in C.
rate.CALL = { abs = "fabs", min = "fmin", max = "fmax" }

-- "if (a < b) return x;" for each choice that e begins with, then what is left.
local function add_returns(out, e, spelling)
    local function line(form, ...) out[#out + 1] = readable.lines("    ", form:format(...)) end
    local rest, parts = readable.parts(e)
    for _, part in ipairs(parts) do line("const double %s = %s;", part[1], expr.text(part[2], spelling)) end
    while rest.op == "where" do
        local condition = expr.text(rest[1], spelling)
        if condition:sub(1, 1) ~= "(" then condition = "(" .. condition .. ")" end
        line("if %s return %s;", condition, expr.text(rest[2], spelling))
        rest = rest[3]
    end
    line("return %s;", expr.text(rest, spelling))
end

-- The first product in e, as there is one at most: of a function of the spec.
local function product_in(e)
    if e.op == "product" then return e end
    for _, child in ipairs(e) do
        local found = product_in(child)
        if found then return found end
    end
end

-- The function of a product. Every update asks for one factor more than the last.
local function factors_of(e, spelled)
    local body = expr.text(e[2], { call = rate.CALL, variable = function() return "(double)factors_done" end })
    return table.concat({
        "/* The product of the spec's factors for 1..n; goes on from the n of the call before. */",
        spelled.kept .. spelled.int64 .. " factors_done;",
        spelled.kept .. "double factors_product;", "",
        ("%sdouble factors(%s n) {"):format(spelled.helper, spelled.int64),
        "    if (factors_done == 0 || n < factors_done) {",
        "        factors_done = 0;",
        "        factors_product = 1;",
        "    }",
        "    while (factors_done < n) {",
        "        factors_done++;",
        readable.lines("        ", ("factors_product *= %s;"):format(body)),
        "    }",
        "    return factors_product;",
        "}", "" }, "\n")
end

-- The text of one function: `head` opens it, `names` says how t, total and more are spelled before it.
local function function_of(comment, head, e, config, spelled)
    local out, uses, product = {}, {}, product_in(e)
    for _, name in ipairs(expr.variables(e)) do uses[name] = true end
    if product then out[1] = factors_of(product, spelled) end
    if comment then out[#out + 1] = comment end
    out[#out + 1] = head .. " {"
    if uses.t and config.schedule.fields.by == "epoch" then
        out[#out + 1] = ("    const %s epoch = cycle%s / %s;"):format(spelled.int64,
            config.epoch_times > 1 and " * " .. config.epoch_times or "", spelled.epoch_cycles)
    end
    if uses.total then out[#out + 1] = ("    const double total = %s;"):format(spelled.total) end
    for _, name in ipairs(spelled.unused) do
        local used = name == spelled.unused[#spelled.unused] and uses.t
            or name == "m" and (uses.total or uses.plateau_rate or uses.t and config.schedule.fields.by == "epoch")
        if not used and spelled.says_unused then out[#out + 1] = ("    (void)%s;"):format(name) end
    end
    local count = config.schedule.fields.by == "epoch" and "epoch" or "t"
    add_returns(out, e, { call = rate.CALL, product = function() return ("factors(%s)"):format(count) end,
        variable = function(v)
        if v == "t" then return config.schedule.fields.by == "epoch" and "(double)epoch" or "(double)t" end
        return (v == "total" or v:find "^x%d+$") and v or spelled.numbers .. v
    end })
    out[#out + 1] = "}"
    return table.concat(out, "\n")
end

-- What the functions take: how many updates are done, or cycles where epochs count.
local function argument(config) return config.schedule.fields.by == "epoch" and "cycle" or "t" end

local function comment_of(config)
    return ("/* %s, from %s */"):format(config.schedule.rule.name, text.comment(config.schedule.at).text)
end

--- The functions of the C target.
function rate.c(config)
    local e, momentum = schedule.expressions(config)
    local spelled = { int64 = "int64_t", epoch_cycles = "m->epoch_cycles", total = "(double)m->schedule_total",
        numbers = "m->step.", unused = { "m", argument(config) }, says_unused = true, helper = "static ",
        kept = "static _Thread_local " }
    local function head(name) return ("double %s_model_%s(const model *m, int64_t %s)"):format(config.name, name,
        argument(config)) end
    local out = { function_of(comment_of(config), head "lr", e, config, spelled) }
    if momentum then
        out[2] = "\n" .. function_of(nil, "static " .. head "momentum", momentum, config, spelled)
    end
    return text.block(table.concat(out, "\n"))
end

--- The functions of a device.
function rate.cuda(config)
    local e, momentum = schedule.expressions(config)
    local spelled = { int64 = "ga_int64", epoch_cycles = "s->epoch_cycles", total = "s->schedule_total",
        numbers = "s->", unused = {}, helper = "GA_DEVICE ", kept = "static __device__ " }
    local function head(name) return ("GA_DEVICE double %s(const step *s, ga_int64 %s)"):format(name,
        argument(config)) end
    local out = { function_of(comment_of(config), head "learning_rate", e, config, spelled) }
    if momentum then out[2] = "\n" .. function_of(nil, head "momentum", momentum, config, spelled) end
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
    return (f.mode or f.metric == "accuracy" and "max" or "min") == "max"
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
