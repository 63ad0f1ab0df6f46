-- norm: the template arguments of layernorm and rmsnorm, as far as all targets have them.
local graph = require "graph.graph"
local text = require "base.text"

local norm = { arguments = {} }
local arguments = norm.arguments

--- Number of rows, and elements per row.
function norm.sizes(node)
    return { rows = graph.elements(node.size.lead or {}), C = node.size.C }
end

function arguments.rmsnorm(_, node, _, dtype, target)
    local list = norm.sizes(node)
    list.eps, list.sqrt = text.number(node.attrs.eps, dtype), target.call("sqrt", dtype)
    return list
end

--- The bias term of element c of a row, in C; empty without a bias.
function norm.shift(node) return node.ins.bias and " + bias[c]" or "" end

function arguments.layernorm(kernel, node, op, dtype, target)
    local list = arguments.rmsnorm(kernel, node, op, dtype, target)
    list.y_half = graph.is_half(node.outs.y.tensor)
    return list
end

function arguments.norm_dx(_, node)
    local list = norm.sizes(node)
    list.centred = node.ins.mean ~= nil
    return list
end

arguments.norm_dw = arguments.norm_dx

return norm
