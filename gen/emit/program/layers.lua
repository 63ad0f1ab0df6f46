-- layers: the model as a table, a row for each layer that is applied.
local columns = require "base.columns"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local text = require "base.text"

local layers = {}

--- The layers of a graph for the plan, with the FLOP of their forward passes in an update.
function layers.facts(g)
    return ordered.collect(g.layers, function(layer)
        return { name = layer.name:gsub("%%d", "N"), kind = layer.kind, shape = layer.shape, count = layer.count,
            parameters = layer.parameters, flops_per_cycle = layer.flops * layer.count * g.accumulate }
    end)
end

local COLUMNS = { { name = true }, {}, {}, { right = true }, { right = true }, { right = true } }

local HEADS = { "layer", "kind", "output", "times", "parameters", "forward FLOP" }

local function cells_of(layer)
    return { layer.name, layer.kind, graph.shape_text(layer.shape), tostring(layer.count),
        text.commas(layer.parameters), text.commas(layer.flops_per_cycle) }
end

--- Lines of the table of `list`, what layers.facts() gives, its sums last. width: of the terminal, which may shorten
--- names, or nil.
function layers.lines(list, width)
    local parameters, flops = 0, 0
    for _, layer in ipairs(list) do
        parameters, flops = parameters + layer.parameters, flops + layer.flops_per_cycle
    end
    local rows = ordered.collect(list, cells_of)
    table.insert(rows, 1, HEADS)
    rows[#rows + 1] = { "total", "", "", "", text.commas(parameters), text.commas(flops) }
    return columns.aligned(rows, { columns = COLUMNS, indent = 2, width = width })
end

return layers
