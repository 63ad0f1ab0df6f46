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
local check = require "base.check"
local diag = require "base.diag"
local expr = require "base.expr"
local graph = require "graph.graph"
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

-- Metrics at most: GA_METRICS of runtime/log/log.h, but for one that only a schedule looks at.
local MOST = 16

-- The metrics of the catalog, for messages.
local function expected(c)
    return 'expected some of "' .. table.concat(c.catalog.metrics.keys, '", "') .. '"'
end

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
function metrics.better(c, name)
    for _, entry in ipairs(c.metrics or {}) do
        if entry.name == name then return entry.better end
    end
    return c.catalog.metrics:get(name).better
end

--- The names of the metrics that are functions of the spec, as a set.
function metrics.functions(c)
    local set = {}
    for _, entry in ipairs(c.metrics) do set[entry.name] = entry.own or nil end
    return set
end

--- Whether an evaluation adds to the sum `name`.
function metrics.adds(c, name) return ordered.find(c.sums, name) ~= nil end

-- The sum of a function of the spec: of its values times the weights of their losses.
local function own_sum(name) return "of_" .. name end

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
    for _, entry in ipairs(list) do
        if entry.own then sums[#sums + 1] = own_sum(entry.name) end
    end
    return sums
end

-- The entry of a metric of the catalog, refused where it does not fit the configuration.
local function known_metric(c, name, place)
    local known = c.catalog.metrics
    if not known:has(name) then
        diag.fail(place, ("eval: metric %s is unknown, %s"):format(type(name) == "string" and "'" .. name .. "'"
            or "a " .. type(name), expected(c)), {})
    end
    local entry = known:get(name)
    local complaint = entry.check and entry.check(c)
    if complaint then diag.fail(place, ("eval: %s %s"):format(name, complaint), {}) end
    return entry
end

-- Fields of an eval event that are no metrics.
local TAKEN = { event = true, cycle = true, split = true, rows = true, best = true }

-- The entry of a metric that is a function of the spec. fields: what is given beside the function; traced: the names of
-- all functions.
local function own_metric(c, name, fields, traced, place)
    local what = "eval: metric '" .. name .. "'"
    if not traced[name] or type(fields) ~= "table" then
        diag.fail(place, what .. " is no function, expected NAME = function(out, batch) ... end", {})
    elseif c.catalog.metrics:has(name) then
        diag.fail(place, what .. " is one of gagen's, expected another name for a function", {})
    elseif TAKEN[name] or not name:match "^[a-z][a-z0-9_]*$" or name:find("__", 1, true) or #name > 32 then
        diag.fail(place, what .. ": expected a name of small letters, digits and _, a letter first, at most 32, and "
            .. "not event, cycle, split, rows or best", {})
    end
    local own = check.fields({ { name = "better", type = "str", default = "lower", values = { "lower", "higher" } } },
        fields, { what = what, locate = function() return place end })
    return { name = name, own = true, better = own.better, at = place, doc = "a function of the spec",
        value = function(s) return s[own_sum(name)] / s.weight end }
end

--- Sets c.metrics, the entries of the metrics in the order of eval.metrics, those with names behind, and c.sums, the
--- names of the sums of a cycle or an evaluation. at: the place of the word eval; events: those of the spec.
function metrics.read(c, eval, at, events)
    local list, place, traced, given = {}, diag.field(at, "metrics"), {}, {}
    for _, event in ipairs(events) do
        if event.event == "metric_begin" then traced[event.name] = true end
    end
    for key, value in ordered.each(eval.metrics) do
        local own = type(key) == "string"
        list[#list + 1] = own and own_metric(c, key, value, traced, place) or known_metric(c, value, place)
        if given[own and key or value] then
            diag.fail(place, ("eval: metric '%s' is given twice"):format(value), {})
        end
        given[own and key or value] = true
    end
    if #list == 0 then diag.fail(place, "eval: metrics is empty, " .. expected(c), {}) end
    if #list > MOST then
        diag.fail(place, ("eval: metrics are %d, expected at most %d"):format(#list, MOST), {})
    end
    c.metrics, c.sums, c.eval_at = list, sums_of(list), at
end

-- Adds nodes that count targets: those that have the largest logit, and those among the five largest.
local function add_hits(g, b, c, ins, tally)
    local rule = c.loss.rule
    if metrics.adds(c, "hits") then
        tally("tally_hits", { hits = rule.hits(b, ins.output, ins.target), target = ins.target, micro = g.micro },
            { sum = "hits", f1 = metrics.adds(c, "found") })
    end
    if metrics.adds(c, "top5") then
        tally("tally_hits", { hits = rule.top_hits(b, ins.output, ins.target, 5), target = ins.target,
            micro = g.micro }, { sum = "top5", f1 = false })
    end
end

-- Adds the node that sums up the values of a function of the spec.
local function add_own(g, c, entry, values, tally)
    local shape = values.shape
    if shape[1] ~= c.batch or graph.rowless(values) then
        diag.fail(entry.at, ("eval: %s gives shape %s, expected one value or more per row, (%d, ...)"):format(
            entry.name, graph.shape_text(shape), c.batch), {})
    elseif values.dtype == "i32" then
        diag.fail(entry.at, ("eval: %s gives whole numbers, expected real ones"):format(entry.name), {})
    end
    tally("tally_values", { values = values, target = g.loss.target, micro = g.micro }, ordered.copy(g.loss.attrs,
        { sum = own_sum(entry.name), each = c.losses_per_row, of_row = graph.elements(shape) // c.batch }))
end

--- Appends the nodes of an evaluation to g.evaluation. ins: { output, target, measured = results of functions of the
--- spec by name }; tally(op, ins, attrs) appends a node that adds to the sums.
function metrics.add(g, b, c, ins, tally)
    for _, entry in ipairs(c.metrics) do
        local complaint = entry.check_classes and entry.check_classes(c.classes)
        if complaint then
            diag.fail(diag.field(c.eval_at, "metrics"), ("eval: %s %s"):format(entry.name, complaint), {})
        end
    end
    b.body = g.evaluation
    add_hits(g, b, c, ins, tally)
    if metrics.adds(c, "errors") then
        tally("tally_errors", { errors = losses.errors(b, ins.output, ins.target), micro = g.micro })
    end
    if metrics.adds(c, "targets") then tally("tally_spread", { target = ins.target, micro = g.micro }) end
    for _, entry in ipairs(c.metrics) do
        if entry.own then add_own(g, c, entry, ins.measured[entry.name], tally) end
    end
    b.body = g.forward
end

return metrics
