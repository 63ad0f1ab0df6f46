-- layers: the model as a table, a row for each layer that is applied.
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

-- `name` in exactly `width` characters; a longer one loses its beginning.
local function fitted(name, width)
    if #name > width then return "\u{2026}" .. name:sub(#name - width + 2) end
    return name .. (" "):rep(width - #name)
end

-- Columns other than names, which are numbers from the third on.
local HEADS = { "kind", "output", "times", "parameters", "forward FLOP" }

local function cells_of(layer)
    return { layer.kind, graph.shape_text(layer.shape), tostring(layer.count), text.commas(layer.parameters),
        text.commas(layer.flops_per_cycle) }
end

--- Lines of the table of `list`, what layers.facts() gives, its sums last. columns: of the terminal; longer names begin
--- with an ellipsis. nil: names are whole.
function layers.lines(list, columns)
    local parameters, flops = 0, 0
    for _, layer in ipairs(list) do
        parameters, flops = parameters + layer.parameters, flops + layer.flops_per_cycle
    end
    local rows = ordered.collect(list, cells_of)
    table.insert(rows, 1, HEADS)
    rows[#rows + 1] = { "", "", "", text.commas(parameters), text.commas(flops) }
    local names = ordered.collect(list, function(layer) return layer.name end)
    table.insert(names, 1, "layer")
    names[#names + 1] = "total"
    local widths, longest, others = {}, 0, 2
    for i = 1, #HEADS do
        widths[i] = 0
        for _, row in ipairs(rows) do widths[i] = math.max(widths[i], #row[i]) end
        others = others + 2 + widths[i]
    end
    for _, name in ipairs(names) do longest = math.max(longest, #name) end
    longest = math.min(longest, columns and math.max(columns - others, 8) or longest)
    local lines = {}
    for i, row in ipairs(rows) do
        local line = { "  ", fitted(names[i], longest) }
        for k, cell in ipairs(row) do
            line[#line + 1] = ("  %" .. (k < 3 and "-" or "") .. widths[k] .. "s"):format(cell)
        end
        lines[i] = table.concat(line)
    end
    return lines
end

return layers
