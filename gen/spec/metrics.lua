-- metrics: what an evaluation measures: the metrics that the spec asks for, the sums that they follow from, and the
-- nodes that add to these sums.
--
-- The entry of a metric (catalog/metric):
--   better          whether a "lower" or a "higher" value is better
--   share           whether it is a part of 1, which lines of text show with four digits behind the point
--   value           the metric, as an expression of the sums s.NAME of all rows and ranks, or as a list of statements
--                   whose last one is the metric; s.undefined: it has no value, and is "nan" in the log
--   check           the complaint about a configuration that it does not fit, or nil
--   check_classes   the same for the number of classes that the model gives
local diag = require "base.diag"
local expr = require "base.expr"
local losses = require "spec.losses"
local ordered = require "base.ordered"
local statements = require "base.statements"

local metrics = {}

-- The sums of every cycle: losses, their weight, rows, targets that count; the weight of the micro-step alone.
local ALWAYS = { "loss", "weight", "rows", "count", "micro" }

-- Sums of an evaluation alone, in groups that are added together:
--   hits                  targets that have the largest logit
--   found, missed         targets of class 1: those among them, and the others
--   top5                  targets among the five largest logits
--   errors, squares       |output - target|, and its square
--   targets, target_squares, shift
--                         target - shift, and its square. The shift is the first target of the evaluation, the same for
--                         all ranks, so that sums of numbers far from 0 do not cancel; no node adds to it
local GROUPS = { { "hits" }, { "found", "missed" }, { "top5" }, { "errors", "squares" },
    { "targets", "target_squares", "shift" } }

-- A table whose fields are variables of their names.
local SUMS = setmetatable({}, { __index = function(_, name) return expr.var(name) end })

--- A metric as a list of statements (base/statements.lua) of the sums.
function metrics.statements(entry)
    local value = entry.value(SUMS)
    return expr.is(value) and { { entry.name, value } } or value
end

--- The spelling of a metric in C (expr.text); sum(name) is the text of a sum.
function metrics.spelling(sum)
    return { variable = function(name) return name == "undefined" and "NAN" or sum(name) or name end }
end

--- Whether a "lower" or a "higher" value of the metric `name` is better. c: the configuration.
function metrics.better(c, name) return c.catalog.metrics:get(name).better end

--- Whether an evaluation adds to the sum `name`.
function metrics.adds(c, name) return ordered.find(c.sums, name) ~= nil end

-- The sums that these metrics follow from, with those that every program has.
local function sums_of(list)
    local needed, sums = {}, ordered.copy(ALWAYS)
    for _, entry in ipairs(list) do
        for _, name in ipairs(statements.inputs(metrics.statements(entry))) do needed[name] = true end
    end
    for _, group in ipairs(GROUPS) do
        local wanted = ordered.collect(group, function(name) return needed[name] end)
        if #wanted > 0 then table.move(group, 1, #group, #sums + 1, sums) end
    end
    return sums
end

--- Sets c.metrics, the entries of the metrics in the order of eval.metrics, and c.sums, the names of the sums of a
--- cycle or an evaluation. at: the place of the word eval.
function metrics.read(c, eval, at)
    local known, list, place = c.catalog.metrics, {}, diag.field(at, "metrics")
    local expected = 'expected some of "' .. table.concat(known.keys, '", "') .. '"'
    if #eval.metrics == 0 then diag.fail(place, "eval: metrics is empty, " .. expected, {}) end
    for i, name in ipairs(eval.metrics) do
        if ordered.find(eval.metrics, name) < i then
            diag.fail(place, ("eval: metric '%s' is given twice"):format(name), {})
        end
        if not known:has(name) then
            diag.fail(place, ("eval: metric %s is unknown, %s"):format(type(name) == "string" and "'" .. name .. "'"
                or "a " .. type(name), expected), {})
        end
        list[i] = known:get(name)
        local complaint = list[i].check and list[i].check(c)
        if complaint then diag.fail(place, ("eval: %s %s"):format(name, complaint), {}) end
    end
    c.metrics, c.sums, c.eval_at = list, sums_of(list), at
end

-- Adds nodes that count targets: those that have the largest logit, and those among the five largest.
local function add_hits(b, c, ins, tally)
    local rule = c.loss.rule
    if metrics.adds(c, "hits") then
        tally("tally_hits", { hits = rule.hits(b, ins.output, ins.target), target = ins.target, micro = ins.micro },
            { sum = "hits", f1 = metrics.adds(c, "found") })
    end
    if metrics.adds(c, "top5") then
        tally("tally_hits", { hits = rule.top_hits(b, ins.output, ins.target, 5), target = ins.target,
            micro = ins.micro }, { sum = "top5", f1 = false })
    end
end

--- Appends the nodes of an evaluation to g.evaluation. ins: { output, target, micro }; tally(op, ins, attrs) appends a
--- node that adds to the sums.
function metrics.add(g, b, c, ins, tally)
    for _, entry in ipairs(c.metrics) do
        local complaint = entry.check_classes and entry.check_classes(c.classes)
        if complaint then
            diag.fail(diag.field(c.eval_at, "metrics"), ("eval: %s %s"):format(entry.name, complaint), {})
        end
    end
    b.body = g.evaluation
    add_hits(b, c, ins, tally)
    if metrics.adds(c, "errors") then
        tally("tally_errors", { errors = losses.errors(b, ins.output, ins.target), micro = ins.micro })
    end
    if metrics.adds(c, "targets") then tally("tally_spread", { target = ins.target, micro = ins.micro }) end
    b.body = g.forward
end

return metrics
