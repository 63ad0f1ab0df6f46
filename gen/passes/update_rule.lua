-- update_rule: the rule of a parameter group as statements over elements: { name, expression } each. Names: w, g and
-- states of an element; x, adjust, row and column of an element of a matrix; scalars of the run; lr and t.
local diag = require "base.diag"
local expr = require "base.expr"
local schedule = require "spec.schedule"

local update_rule = {}

-- With a decay, the average of each parameter follows its new value.
local function with_average(decay, statements)
    if not decay then return statements end
    local list, new_w, average = {}, expr.var "new_w", expr.var "ema"
    for _, s in ipairs(statements) do
        if s[1] == "w" then
            list[#list + 1] = { "new_w", s[2] }
            list[#list + 1] = { "w", new_w }
        else
            list[#list + 1] = s
        end
    end
    list[#list + 1] = { "ema", average + (1 - decay) * (new_w - average) }
    return list
end

--- The rule of a group:
--   statements  the sweep over elements
--   before      of a rule that needs sums over each tensor first: { statements, sums, scales }
--   start       of scope "matrix": x of each element, before the iteration
--   factors     { term, row_var, col_var, row } of a rule that keeps factors of its matrices
--   element     set of the names of elements; numbers, initial: names and first values of the run's scalars
function update_rule.of(g, config, group)
    local rule, names = group.rule, {}
    local r = { element = {}, numbers = {}, initial = {} }
    for _, name in ipairs(g.state_names) do names[name], r.element[name] = expr.var(name), true end
    for _, scalar in ipairs(rule.scalars and rule.scalars(group.fields) or {}) do
        local name = scalar[1]
        names[name], r.numbers[name], r.initial[name] = expr.var(name), true, scalar[2]
    end
    r.element.w, r.element.g = true, true
    if rule.scope == "matrix" then r.element.x, r.element.adjust = true, true end
    if rule.factors then r.element.row, r.element.column = true, true end
    local fields = schedule.with_momentum(config, rule, group.fields)
    local arguments = { fields, expr.var "w", expr.var "g", names, expr.var "lr", expr.var "t" }
    if rule.sums then r.before = rule.sums(table.unpack(arguments)) end
    if rule.start then r.start = rule.start(table.unpack(arguments)) end
    if rule.factors then r.factors = rule.factors(fields, expr.var "g", names, expr.var "t") end
    r.statements = with_average(config.optimizer.own.ema, rule.update(table.unpack(arguments)))
    return r
end

--- Refuses rules that go over whole tensors where a word needs each element updated by itself. what: "nvme is given".
function update_rule.refuse_whole(g, at, what)
    for _, group in g.groups:each() do
        local rule = group.rule
        if rule.scope ~= "element" then
            diag.fail(at, ("parallel: %s, and the rule '%s' goes over whole tensors before it updates an element: "
                .. "expected an optimizer that updates each element by itself, such as adamw"):format(what,
                rule.name), {})
        end
    end
end

--- The names that the statements, and further expressions, read or write, as two sets.
function update_rule.uses(statements, expressions)
    local reads, writes = {}, {}
    local function read(e)
        for _, name in ipairs(expr.variables(expr.lift(e))) do reads[name] = true end
    end
    for _, s in ipairs(statements) do
        read(s[2])
        writes[s[1]] = true
    end
    for _, e in ipairs(expressions or {}) do read(e) end
    return reads, writes
end

return update_rule
