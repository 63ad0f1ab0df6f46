-- matmul: the linear layer and the two products of its gradient, all lowered to one blocked GEMM:
-- C(i, j) = sum over k of A(i, k) B(k, j).
local graph = require "graph.graph"

-- A is m x k, B is k x n; a and b are their strides { row, column }. The rows of C are c_row apart.
local function product(m, n, k, a, b, c_row)
    return { M = m, N = n, K = k, a_row = a[1], a_col = a[2], b_row = b[1], b_col = b[2], c_row = c_row or n }
end

local function rows(node) return graph.elements(node.size.lead or {}) end

local function cost(node)
    local s, m = node.size, rows(node)
    return { flops = 2 * m * s.N * s.K, elements = m * s.K + s.N * s.K + m * s.N }
end

-- Of the gradient of a weight, with the gradient of the bias where its kernel sums dy too (passes/sums.lua).
local function cost_of_gradient(node)
    local list, s = cost(node), node.size
    if not node.outs.bias then return list end
    return { flops = list.flops + rows(node) * s.N, elements = list.elements + s.N }
end

op "linear" {
    doc = "y = x weight^T + bias over the last axis",
    ins = { "x (..., K)", "weight (N, K)", "bias (N) ?" }, outs = { "y (..., N)" },
    grad = function(b, n, dy)
        local d = {}
        d.x = b:value("linear_dx", { dy = dy.y, weight = n.ins.weight })
        d.weight = b:value("linear_dw", { dy = dy.y, x = n.ins.x })
        if n.ins.bias then d.bias = b:value("column_sum", { x = dy.y }) end
        return d
    end,
    cost = cost, lower = "matmul", block = "linear", rounds = true, half = "x dy weight y",
    gemm = function(n)
        local s = n.size
        return product(rows(n), s.N, s.K, { s.K, 1 }, { 1, s.K }, n.outs.y.tensor.row)
    end,
    sample = 'linear "sample" { 5 }',
}

op "linear_in_out" {
    doc = "linear with the weight stored as (in, out): rows of the product are contiguous",
    ins = { "x (..., K)", "weight (K, N)", "bias (N) ?" }, outs = { "y (..., N)" },
    grad = function(b, n, dy)
        local d = {}
        d.x = b:value("linear_in_out_dx", { dy = dy.y, weight = n.ins.weight })
        d.weight = b:value("linear_in_out_dw", { x = n.ins.x, dy = dy.y })
        if n.ins.bias then d.bias = b:value("column_sum", { x = dy.y }) end
        return d
    end,
    cost = cost, lower = "matmul", block = "linear", rounds = true, half = "x dy weight y",
    gemm = function(n)
        local s = n.size
        return product(rows(n), s.N, s.K, { s.K, 1 }, { s.N, 1 }, n.outs.y.tensor.row)
    end,
    sample = 'linear "sample" { 5, store = "in_out" }',
}

op "linear_dx" {
    doc = "dx = dy weight",
    ins = { "dy (..., N)", "weight (N, K)" }, outs = { "y (..., K)" },
    internal = true, cost = cost, lower = "matmul", block = "linear", rounds = true,
    half = "x dy weight y",
    gemm = function(n)
        local s = n.size
        return product(rows(n), s.K, s.N, { n.ins.dy.row or s.N, 1 }, { s.K, 1 })
    end,
}

op "linear_dw" {
    doc = "dweight = dy^T x, summed over the rows",
    ins = { "dy (..., N)", "x (..., K)" }, outs = { "y (N, K)" },
    internal = true, cost = cost_of_gradient, lower = "matmul", block = "linear", rounds = true,
    half = "x dy weight y",
    gemm = function(n)
        local s = n.size
        return product(s.N, s.K, rows(n), { 1, n.ins.dy.row or s.N }, { s.K, 1 })
    end,
}

op "linear_in_out_dx" {
    doc = "dx = dy weight^T for a weight stored as (in, out)",
    ins = { "dy (..., N)", "weight (K, N)" }, outs = { "y (..., K)" },
    internal = true, cost = cost, lower = "matmul", block = "linear", rounds = true,
    half = "x dy weight y",
    gemm = function(n)
        local s = n.size
        return product(rows(n), s.K, s.N, { n.ins.dy.row or s.N, 1 }, { 1, s.N })
    end,
}

op "linear_in_out_dw" {
    doc = "dweight = x^T dy, summed over the rows, for a weight stored as (in, out)",
    ins = { "x (..., K)", "dy (..., N)" }, outs = { "y (K, N)" },
    internal = true, cost = cost_of_gradient, lower = "matmul", block = "linear", rounds = true,
    half = "x dy weight y",
    gemm = function(n)
        local s = n.size
        return product(s.K, s.N, rows(n), { 1, s.K }, { n.ins.dy.row or s.N, 1 })
    end,
}

op "pack_in_out" {
    doc = "the transpose of a weight, made once per update",
    ins = { "x (N, K)" }, outs = { "y (K, N)" },
    internal = true, lower = "layout", half = "y",
    cost = function(n) return { flops = 0, elements = 2 * n.size.N * n.size.K } end,
}

op "pack_panels" {
    doc = "a weight as panels of the products that read its rows, made once per update",
    ins = { "x (K, N)" }, outs = { "y (K, N)" },
    internal = true, needs = "panels", lower = "layout", half = "y",
    cost = function(n) return { flops = 0, elements = 2 * n.size.N * n.size.K } end,
}

op "pack_turned_panels" {
    doc = "a weight as panels of the products that read its columns, made once per update",
    ins = { "x (N, K)" }, outs = { "y (N, K)" },
    internal = true, needs = "panels", lower = "layout", half = "y",
    cost = function(n) return { flops = 0, elements = 2 * n.size.N * n.size.K } end,
}

op "pack_both_panels" {
    doc = "a weight as panels of the products that read its rows, and as those of its columns, made once per update",
    ins = { "x (N, K)" }, outs = { "y (N, K)", "turned (N, K)" },
    internal = true, needs = "panels", lower = "layout", half = "y turned",
    cost = function(n) return { flops = 0, elements = 3 * n.size.N * n.size.K } end,
}
