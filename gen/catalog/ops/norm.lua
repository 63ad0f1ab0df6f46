-- norm: normalises the last axis. layernorm and rmsnorm share their gradients: rmsnorm is layernorm with a mean of 0.
-- With n = (x - mean) rstd, g = dy weight and averages over the last axis:
--   dx = rstd (g - average(g) - n average(g n)),  dweight = sum over the rows of dy n
-- rmsnorm subtracts no mean, so average(g) is left out.
local graph = require "graph.graph"

local function elements(node) return graph.elements(node.size.lead or {}) end

local function cost(flops, passes)
    return function(n)
        local rows, width = elements(n), n.size.C
        return { flops = flops * rows * width, elements = rows * (passes * width + 2) + 2 * width }
    end
end

local function gradients(b, n, dy)
    local mean = n.outs.mean and n.outs.mean.tensor
    local rstd = n.outs.rstd.tensor
    local d = {}
    d.x = b:value("norm_dx", { dy = dy.y, x = n.ins.x, weight = n.ins.weight, mean = mean, rstd = rstd })
    d.weight = b:value("norm_dw", { dy = dy.y, x = n.ins.x, mean = mean, rstd = rstd })
    if n.ins.bias then d.bias = b:value("column_sum", { x = dy.y }) end
    return d
end

op "layernorm" {
    doc = "(x - mean) rstd weight + bias over the last axis, rstd = 1 / sqrt(variance + eps)",
    ins = { "x (..., C)", "weight (C)", "bias (C) ?" },
    outs = { "y (..., C)", "mean full (...)", "rstd full (...)" },
    grad = gradients, cost = cost(7, 2), lower = "norm", half = "x y",
    sample = 'layernorm "sample" {}',
    samples = { 'layernorm "sample" { eps = 0.3, bias = false }' },
}

op "rmsnorm" {
    doc = "x rstd weight over the last axis, rstd = 1 / sqrt(average of x^2 + eps)",
    ins = { "x (..., C)", "weight (C)" }, outs = { "y (..., C)", "rstd full (...)" },
    grad = gradients, cost = cost(4, 2), lower = "norm", half = "x y",
    sample = 'rmsnorm "sample" {}', samples = { 'rmsnorm "sample" { eps = 0.3 }' },
}

op "norm_dx" {
    doc = "rstd (g - average(g) - n average(g n)) with g = dy weight, n = (x - mean) rstd; with attrs.parts also the "
        .. "sums of dweight and dbias over so many parts of the rows (passes/sums.lua)",
    ins = { "dy (..., C)", "x (..., C)", "weight (C)", "mean (...) ?", "rstd (...)" },
    outs = { "y (..., C)" },
    internal = true, lower = "norm", half = "x dy y",
    cost = function(n)
        local list, parts = cost(10, 3)(n), n.outs.parts
        if not parts then return list end
        return { flops = list.flops + 5 * elements(n) * n.size.C,
            elements = list.elements + graph.elements(parts.tensor.shape) }
    end,
}

op "norm_sums" {
    doc = "the sums over the parts of dweight and dbias that norm_dx leaves",
    ins = { "x (P, W, C)" }, outs = { "y (C)", "bias (C)" },
    omit = function(n, name) return name == "bias" and n.size.W == 1 end,
    letters = function(_, size) size.outer, size.n, size.inner = 1, size.P, size.W * size.C end,
    internal = true, needs = "sums_rows", lower = "reduce", block = "axis_sum",
    cost = function(n)
        local s = n.size
        return { flops = s.P * s.W * s.C, elements = (s.P + 1) * s.W * s.C }
    end,
}

op "norm_dw" {
    doc = "the sum over the rows of dy (x - mean) rstd; with attrs.parts one for each of so many parts of the rows",
    ins = { "dy (..., C)", "x (..., C)", "mean (...) ?", "rstd (...)" }, outs = { "y (S)" },
    letters = function(n, size)
        size.S = n.attrs.parts and { n.attrs.parts, size.C } or { size.C }
    end,
    internal = true, cost = cost(4, 2), lower = "norm", half = "x dy",
}
