-- kernels_shape: what the templates of ops that move values, reduce axes or look rows up are given.
-- A map from op to function(kernel, node, op, dtype), as in emit/kernels/kernels.lua.
local c = require "emit.targets.c.c"
local graph = require "graph.graph"
local text = require "base.text"

local arguments = {}

local function real() return text.ident("real") end

-- === shape =======================================================================================

function arguments.slice_dx(kernel, node)
    local s, a = node.size, node.attrs
    return { real = real(), rows = s.outer, width = s.n * s.inner, first = (a.first - 1) * s.inner,
        count = (a.last - a.first + 1) * s.inner, store = c.store(kernel, "y[i]", "value") }
end

function arguments.accumulate(_, node) return { n = graph.elements(node.size.S) } end

function arguments.accumulate_half(_, node)
    return { n = graph.elements(node.size.S), draws = node.ins.facts ~= nil, name = text.string(node.attrs.name) }
end

function arguments.concat(_, node)
    local s = node.size
    local first = node.ins.a.shape[node.attrs.axis] * s.inner
    return { rows = s.outer, first = first, second = s.n * s.inner - first }
end

-- === reduce ======================================================================================

local function split(node)
    local s = node.size
    return { real = real(), outer = s.outer, n = s.n, inner = s.inner }
end

function arguments.axis_sum(kernel, node, _, dtype, target)
    local list = split(node)
    local by_rows = node.size.inner == 1 and node.op == "axis_sum"
    list.type, list.term = c.type_of(node.ins.x), text.block(c.load(node.ins.x,
        by_rows and "row[j]" or target.folder == "c" and "row[k]" or "column[j * INNER]"))
    list.value = text.block(node.attrs.mean and " * " .. text.number(1 / node.size.n, dtype).text or "")
    list.store = c.store(kernel, "y[i]", "value")
    if by_rows then list.inner = nil end
    return list
end

arguments.column_sum = arguments.axis_sum

function arguments.axis_max(_, node) return split(node) end

function arguments.axis_max_dx(kernel, node)
    local list = split(node)
    list.store = c.store(kernel, "y[i]", "value")
    return list
end

function arguments.copy(kernel, node)
    return { n = graph.elements(node.ins.x.shape), store = c.store(kernel, "y[i]", "x[i]") }
end

-- === softmax =====================================================================================

local function by_rows(node)
    return { real = real(), rows = graph.elements(node.size.lead), C = node.size.C }
end

function arguments.softmax(_, node, _, dtype, target)
    local list = by_rows(node)
    list.exp = target.call("exp", dtype)
    return list
end

function arguments.log_softmax(_, node, _, dtype, target)
    local list = arguments.softmax(_, node, _, dtype, target)
    list.log = target.call("log", dtype)
    return list
end

function arguments.softmax_dx(kernel, node)
    local list = by_rows(node)
    list.store = c.store(kernel, "y[i]", "value")
    return list
end

function arguments.log_softmax_dx(kernel, node, _, dtype, target)
    local list = arguments.softmax_dx(kernel, node)
    list.exp = target.call("exp", dtype)
    return list
end

-- === embedding ===================================================================================

function arguments.embedding(_, node, _, _, target)
    local row = target.folder == "c" and "weight[(size_t)ids[i] * C + c]"
        or "weight[(ga_int64)ids[(int)i / C] * C + (int)i % C]"
    return { ids = graph.elements(node.size.lead), C = node.size.C,
        value = text.block(c.stored(node.outs.y.tensor, row)) }
end

function arguments.id_order(_, node) return { ids = node.size.N, rows = node.size.F - 1 } end

function arguments.embedding_dw(kernel, node, _, _, target)
    return { real = real(), rows = node.size.R, C = node.size.C, adds = kernel.can_add or false,
        padding = node.attrs.padding or false, type = target.folder == "c" and c.type_of(node.ins.dy) or nil,
        term = text.block(c.load(node.ins.dy, target.folder == "c" and "place[c]"
            or "dy[(ga_int64)order[k] * C + c]")), store = c.store(kernel, "y[i]", "value") }
end

return arguments
