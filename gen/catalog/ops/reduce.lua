-- reduce: sums, means, maxima and softmax along axes, and the copy. A shape is split into (outer, n, inner): the axes
-- before the reduced ones, these, and those behind. Sums run from the first element to the last.
local graph = require "graph.graph"
local view = require "graph.view"

local function elements(node) return graph.elements(node.size.lead or {}) end

local function split(n, size, shape)
    size.outer, size.n, size.inner = view.split(shape, n.attrs.first, n.attrs.last)
end

local function reduced(n)
    local s = n.size
    return { flops = s.outer * s.n * s.inner, elements = s.outer * (s.n + 1) * s.inner }
end

op "column_sum" {
    doc = "the sum over all rows: the gradient of a bias; with attrs.parts one for each of so many parts of the rows",
    ins = { "x (..., N)" }, outs = { "y (S)" },
    letters = function(n, size)
        local parts = n.attrs.parts or 1
        size.outer, size.n, size.inner = parts, graph.elements(size.lead) // parts, size.N
        size.S = n.attrs.parts and { parts, size.N } or { size.N }
    end,
    internal = true, lower = "reduce", block = "axis_sum", cost = reduced, half = "x y",
}

op "axis_sum" {
    doc = "the sum over the axes first .. last, or their mean; the result has the given shape",
    ins = { "x (*)" }, outs = { "y (S)" },
    letters = function(n, size)
        size.S = n.attrs.shape
        split(n, size, n.ins.x.shape)
    end,
    grad = function(b, n, dy)
        return { x = b:value("axis_spread", { x = dy.y }, { shape = n.ins.x.shape,
            first = n.attrs.first, last = n.attrs.last, mean = n.attrs.mean }) }
    end,
    cost = reduced, lower = "reduce", half = "x y",
    block = function(n) return n.size.inner == 1 and "row_sum" or "axis_sum" end, blocks = { "row_sum", "axis_sum" },
    sample = "loss(function(out, batch) return mean(out * out) end)",
    samples = {
        "function(x) return mean { axis = 2 } (reshape { 2, 3 } (linear 'm' { 6 } (x))) end",
        "function(x) return flatten {} (sum { axis = 3 } (reshape { 2, 3, 4 } (linear 'm' { 24 } (x)))) end",
    },
}

op "axis_spread" {
    doc = "dx = dy for each element that was summed, divided by their number for a mean",
    ins = { "x (*)" }, outs = { "y (S)" },
    letters = function(n, size)
        size.S = n.attrs.shape
        split(n, size, size.S)
    end,
    view = function(n)
        local s = n.size
        return view.new({ s.outer, s.n, s.inner }, { s.inner, 0, 1 })
    end,
    value = function(n, x) return n.attrs.mean and x * (1 / n.size.n) or x end,
    internal = true, lower = "pointwise",
    cost = function(n) return { flops = 0, elements = 2 * graph.elements(n.size.S) } end,
}

op "axis_max" {
    doc = "the greatest value along an axis and the place of the first such, from 0; NaN stays NaN",
    ins = { "x (*)" }, outs = { "y (S)", "place i32 (S)" },
    letters = function(n, size)
        size.S = n.attrs.shape
        split(n, size, n.ins.x.shape)
    end,
    grad = function(b, n, dy)
        return { x = b:value("axis_max_dx", { dy = dy.y, place = n.outs.place.tensor },
            { shape = n.ins.x.shape, first = n.attrs.first, last = n.attrs.last }) }
    end,
    cost = reduced, lower = "reduce",
    sample = "function(x) return max { axis = 2 } (reshape { 3, 4 } (linear 'm' { 12 } (x))) end",
    samples = { "function(x) return max(reshape { 3, 4 } (linear 'm' { 12 } (x))) end" },
}

op "axis_max_dx" {
    doc = "dx = dy at the place of the greatest value, 0 elsewhere",
    ins = { "dy (*)", "place i32 (*)" }, outs = { "y (S)" },
    letters = function(n, size)
        size.S = n.attrs.shape
        split(n, size, size.S)
    end,
    internal = true, lower = "reduce", cost = reduced,
}

op "copy" {
    doc = "a copy of a value that must not share memory",
    ins = { "x any (...)" }, outs = { "y any (...)" },
    grad = function(_, _, dy) return { x = dy.y } end,
    internal = true, lower = "reduce",
    cost = function(n) return { flops = 0, elements = 2 * elements(n) } end,
}

op "softmax" {
    doc = "e^x / sum of e^x over the last axis",
    ins = { "x (..., C)" }, outs = { "y (..., C)" },
    grad = function(b, n, dy)
        return { x = b:value("softmax_dx", { dy = dy.y, s = n.outs.y.tensor }) }
    end,
    cost = function(n) return { flops = 4 * elements(n) * n.size.C, elements = 2 * elements(n) * n.size.C } end,
    lower = "softmax",
    sample = "softmax {}",
}

op "softmax_dx" {
    doc = "y = s (dy - sum of dy s) for s = softmax(x)",
    ins = { "dy (..., C)", "s (..., C)" }, outs = { "y (..., C)" },
    internal = true, lower = "softmax",
    cost = function(n) return { flops = 4 * elements(n) * n.size.C, elements = 3 * elements(n) * n.size.C } end,
}

op "log_softmax" {
    doc = "x - log of the sum of e^x over the last axis",
    ins = { "x (..., C)" }, outs = { "y (..., C)" },
    grad = function(b, n, dy)
        return { x = b:value("log_softmax_dx", { dy = dy.y, s = n.outs.y.tensor }) }
    end,
    cost = function(n) return { flops = 4 * elements(n) * n.size.C, elements = 2 * elements(n) * n.size.C } end,
    lower = "softmax",
    sample = "log_softmax {}",
}

op "log_softmax_dx" {
    doc = "y = dy - e^s sum of dy for s = log_softmax(x)",
    ins = { "dy (..., C)", "s (..., C)" }, outs = { "y (..., C)" },
    internal = true, lower = "softmax",
    cost = function(n) return { flops = 4 * elements(n) * n.size.C, elements = 3 * elements(n) * n.size.C } end,
}
