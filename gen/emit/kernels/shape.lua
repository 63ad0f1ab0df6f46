-- shape: the template arguments of ops that move values, reduce axes or look rows up, as far as all targets
-- have them: functions of kernel, node, op, dtype and target (targets/ops.lua).
local c_text = require "emit.targets.c_text"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local text = require "base.text"

local shape = { arguments = {} }
local arguments = shape.arguments

-- === shape =======================================================================================

--- How rows are cut: rows, width of each, the first element of the slice, count of its elements.
function shape.slice_of(node)
    local s, a = node.size, node.attrs
    return { rows = s.outer, width = s.n * s.inner, first = (a.first - 1) * s.inner,
        count = (a.last - a.first + 1) * s.inner }
end

-- Where a kernel adds it goes over the slice alone: the zeros around it add nothing.
function arguments.slice_dx(kernel, node)
    return ordered.copy(shape.slice_of(node), { type = c_text.type_of(node.ins.dy),
        begin = text.block(kernel.can_add and "add ? FIRST : 0" or "0"),
        behind = text.block(kernel.can_add and "(add ? FIRST + COUNT : WIDTH)" or "WIDTH"),
        element = text.block(c_text.load(node.ins.dy, "from_dy[c - FIRST]")),
        store = c_text.store(kernel, "y[i]", "value") })
end

function arguments.accumulate(_, node) return { n = graph.elements(node.size.S) } end

function arguments.accumulate_half(_, node)
    return { n = graph.elements(node.size.S), draws = node.ins.micro ~= nil, name = text.string(node.attrs.name) }
end

function arguments.concat(_, node)
    local s = node.size
    local first = graph.elements(node.ins.a.shape) // s.outer
    return { rows = s.outer, first = first, second = s.n * s.inner - first }
end

-- === reduce ======================================================================================

local function split(node)
    local s = node.size
    return { outer = s.outer, n = s.n, inner = s.inner }
end

--- `term`: the text of the next element of x in the sum of a row or column.
function shape.axis_sum(kernel, node, dtype, term)
    local list = split(node)
    list.type, list.term = c_text.type_of(node.ins.x), text.block(c_text.load(node.ins.x, term))
    list.value = text.block(node.attrs.mean and " * " .. text.number(1 / node.size.n, dtype).text or "")
    list.store = c_text.store(kernel, "y[i]", "value")
    if shape.by_rows(node) then list.inner = nil end
    return list
end

--- Whether an axis_sum sums contiguous elements.
function shape.by_rows(node) return node.size.inner == 1 and node.op == "axis_sum" end

function arguments.axis_max(_, node) return split(node) end

function arguments.axis_max_dx(kernel, node)
    local list = split(node)
    list.store = c_text.store(kernel, "y[i]", "value")
    return list
end

function arguments.copy(kernel, node)
    local x = node.ins.x
    return { n = graph.elements(x.shape), store = c_text.store(kernel, "y[i]", c_text.load(x, "x[i]")) }
end

-- === softmax =====================================================================================

local function by_rows(node)
    return { rows = graph.elements(node.size.lead), C = node.size.C }
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
    list.store = c_text.store(kernel, "y[i]", "value")
    return list
end

function arguments.log_softmax_dx(kernel, node, _, dtype, target)
    local list = arguments.softmax_dx(kernel, node)
    list.exp = target.call("exp", dtype)
    return list
end

-- === embedding ===================================================================================

--- `row`: the text that reads element i of the result from the table.
function shape.embedding(node, row)
    return { ids = graph.elements(node.size.lead), C = node.size.C,
        value = text.block(c_text.stored(node.outs.y.tensor, row)) }
end

function arguments.id_order(_, node) return { ids = node.size.N, rows = node.size.F - 1 } end

--- `term`: the text of the next element of dy in the sum of a row of the table.
function shape.embedding_dw(kernel, node, term)
    return { rows = node.size.R, C = node.size.C, adds = kernel.can_add or false,
        padding = node.attrs.padding or false, term = text.block(c_text.load(node.ins.dy, term)),
        store = c_text.store(kernel, "y[i]", "value") }
end

-- === layout and draws ============================================================================

--- `x`: the text that reads the element of the weight for an element of the copy.
function shape.pack_in_out(node, x)
    return { N = node.size.N, K = node.size.K, value = text.block(c_text.stored(node.outs.y.tensor, x)) }
end

function arguments.dropout(kernel, node)
    local shape = node.outs.y.tensor.shape
    local width = graph.elements(shape) // shape[1]
    return { rows = shape[1], width = width, p = text.number(node.attrs.p, "f64"),
        name = text.string(node.attrs.name), x = text.block(c_text.load(node.ins.x, "x[i]")),
        store = c_text.store(kernel, "y[i]", "value") }
end

return shape
