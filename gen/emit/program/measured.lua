-- measured: the struct NAME_metrics of a library: fields for the sums that the metrics of the spec need, and how
-- metrics follow from them.
local c_text = require "emit.targets.c_text"
local expr = require "base.expr"
local metrics = require "spec.metrics"
local ordered = require "base.ordered"
local sections = require "emit.program.sections"

local measured = {}

-- The fields of every program, by their sums.
local ALWAYS = { loss = "loss_sum", weight = "weight", rows = "rows", count = "counted", hits = "correct", found = "tp",
    missed = "fn" }

-- Other sums: { sum, type, field, comment }.
local OWN = {
    { "top5", "int64_t", "top5", "targets with fewer than five greater logits than theirs" },
    { "errors", "double", "error_sum", "|output - target|" },
    { "squares", "double", "squared_error_sum", "(output - target)^2" },
    { "targets", "double", "target_sum", "target - t, where t is the first target of the spec's evaluation" },
    { "target_squares", "double", "squared_target_sum", "(target - t)^2" },
}

-- The rows of this program's sums. A function of the spec has a sum of its name.
local function own_fields(config)
    local list = ordered.collect(OWN, function(row) return metrics.adds(config, row[1]) and row or nil end)
    for _, entry in ipairs(config.metrics) do
        if entry.own then
            local name = "of_" .. entry.name
            list[#list + 1] = { name, "double", name, entry.name .. " times the weights of losses" }
        end
    end
    return list
end

--- The fields that not all programs have.
function measured.fields(config)
    return sections.lines(ordered.collect(own_fields(config), function(row)
        return ("%s %s; /* %s */"):format(row[2], row[3], row[4])
    end))
end

--- The lines that set them.
function measured.assignments(config)
    return sections.lines(ordered.collect(own_fields(config), function(row)
        return ("out->%s = %ssums[SUM_%s];"):format(row[3], row[2] == "int64_t" and "(int64_t)" or "", row[1]:upper())
    end))
end

--- Each metric of the spec as a formula of fields, in lines of a comment.
function measured.formulas(config)
    local field, list = ordered.copy(ALWAYS), {}
    for _, row in ipairs(own_fields(config)) do field[row[1]] = row[3] end
    local spelling = metrics.spelling(function(name) return field[name] end)
    for _, entry in ipairs(config.metrics) do
        for _, s in ipairs(metrics.statements(entry)) do
            list[#list + 1] = c_text.formula(s[1], expr.text(s[2], spelling))
        end
    end
    return sections.lines(list)
end

return measured
