-- loss: template arguments of losses, hits and tallies that all targets share.
local c_text = require "emit.targets.c_text"
local expr = require "base.expr"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local text = require "base.text"

local loss = { arguments = {} }
local arguments = loss.arguments

local function rows_of(node) return graph.elements(node.size.lead or {}) end

-- The numbers of a table, one per line; empty for nil.
local function number_rows(list, dtype)
    return text.block(table.concat(ordered.collect(list or {}, function(x)
        return expr.literal(x, dtype) .. ","
    end), "\n"))
end

-- classes: how they count in a cross entropy with smoothing s and class weights w.
--   smooth, weighted    whether it has them
--   masked, dy          whether dy of an ignored target may be other than 0; dy, or 0 there
--   smoothing, rest     s, 1 - s
--   weights             w, a line for each class
--   total               s / C times the sum of w
local function classes_of(attrs, dtype)
    local s, w, total = attrs.smoothing or 0, attrs.weights, 0
    for _, x in ipairs(w or {}) do total = total + s * x / #w end
    return { smooth = s ~= 0, weighted = w ~= nil, masked = attrs.masked or false,
        dy = text.block(attrs.masked and "counted" or "dy[r]"), smoothing = text.number(s, dtype),
        rest = text.number(1 - s, dtype),
        weights = number_rows(w, dtype), total = text.number(total, dtype) }
end

function arguments.cross_entropy(_, node, _, dtype, target)
    return { rows = rows_of(node), C = node.size.C, classes = classes_of(node.attrs, dtype),
        exp = target.call("exp", dtype), log = target.call("log", dtype) }
end

function arguments.cross_entropy_dx(kernel, node, _, dtype, target)
    return { rows = rows_of(node), C = node.size.C, classes = classes_of(node.attrs, dtype),
        exp = target.call("exp", dtype), logit = text.block(c_text.load(node.ins.logits, "logits[i]")),
        store = c_text.store(kernel, "y[i]", "value") }
end

--- The number of elements in the true rows of the batch, as text; all rows have the same number.
function loss.counted(node)
    local lead = node.size.lead
    local each = graph.elements(lead) // lead[1]
    return text.block(each == 1 and "micro->rows" or ("micro->rows * %d"):format(each))
end

function arguments.loss_seed(_, node, _, _, target)
    return { seed = text.block(target.scalar("seed", node.ins.seed)),
        rows = rows_of(node), counted = loss.counted(node),
        targets = node.ins.target ~= nil, micro = node.ins.sums ~= nil }
end

function arguments.micro_weight(_, node, _, dtype)
    local attrs, lead = node.attrs, node.size.lead
    return { each = graph.elements(lead) // lead[1], weighted = attrs.weights ~= nil,
        weights = number_rows(attrs.weights, dtype) }
end

function arguments.tally(kernel, node, op, dtype)
    local weight = node.attrs.weight
    return ordered.copy(arguments.micro_weight(kernel, node, op, dtype), { targets = node.ins.target ~= nil,
        samples = weight == "sample", micro = weight == "micro" })
end

function arguments.tally_hits(_, node)
    return { counted = loss.counted(node), sum = text.ident("SUM_" .. node.attrs.sum:upper()), f1 = node.attrs.f1 }
end

function arguments.tally_errors(_, node) return { counted = loss.counted(node) } end

arguments.tally_spread = arguments.tally_errors

function arguments.tally_values(_, node, _, dtype)
    local attrs = node.attrs
    return { sum = text.ident("SUM_" .. attrs.sum:upper()), each = attrs.each, of_row = attrs.of_row,
        targets = node.ins.target ~= nil, samples = attrs.weight == "sample", weighted = attrs.weights ~= nil,
        weights = number_rows(attrs.weights, dtype) }
end

function arguments.hit(_, node) return { rows = rows_of(node), C = node.size.C } end

function arguments.top_hit(_, node) return { rows = rows_of(node), C = node.size.C, k = node.attrs.k } end

return loss
