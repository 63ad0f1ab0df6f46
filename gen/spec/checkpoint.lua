-- checkpoint: the word checkpoint, and train.patience: both look at the best evaluation.
local diag = require "base.diag"
local metrics = require "spec.metrics"
local ordered = require "base.ordered"

local checkpoint = {}

-- The metric must be one that the evaluations measure; the loss always is.
local function check_metric(c, metric, at, what)
    if not c.eval then
        diag.fail(at, what .. " looks at evaluations: the word eval is missing", {})
    end
    local measured = ordered.collect(c.metrics, function(entry) return entry.name end)
    if metric == "loss" or ordered.find(measured, metric) then return end
    diag.fail(at, ("%s looks at '%s', and eval does not measure it: expected loss, or another one of %s"):format(what,
        metric, table.concat(measured, ", ")), { found = metric, hint = diag.suggest(metric, measured) })
end

--- Leaves in c.checkpoint the fields of the word, and in c.best the settings of runtime/loop/best.h: { metric, more,
--- patience, min_delta, kept = its checkpoint stays }, or nil.
function checkpoint.read(c, fields, at)
    local patience, min_delta = c.train.patience, c.train.min_delta
    c.checkpoint = fields
    if min_delta and not patience then
        diag.fail(diag.field(c.train_at, "min_delta"), "train: min_delta says how much an evaluation must improve for "
            .. "patience: expected patience too", {})
    end
    if not fields.best and not patience then return end
    local metric = fields.best or "loss"
    if fields.best then
        check_metric(c, metric, diag.field(at, "best"), "checkpoint: best")
    else
        check_metric(c, metric, diag.field(c.train_at, "patience"), "train: patience")
    end
    c.best = { metric = metric, more = metrics.better(c, metric) == "higher", patience = patience or 0,
        min_delta = min_delta or 0, kept = fields.best ~= nil }
end

return checkpoint
