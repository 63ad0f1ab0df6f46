-- reduce: sums over rows and means over the last axis, and the copy.
local graph = require "graph.graph"

local function elements(node) return graph.elements(node.size.lead or {}) end

op "column_sum" {
    doc = "the sum over all rows: the gradient of a bias",
    ins = { "x (..., N)" }, outs = { "y (N)" },
    internal = true, lower = "reduce",
    cost = function(n)
        return { flops = elements(n) * n.size.N, elements = (elements(n) + 1) * n.size.N }
    end,
}

op "mean" {
    doc = "the mean over the last axis",
    ins = { "x (..., C)" }, outs = { "y (...)" },
    grad = function(b, n, dy)
        return { x = b:value("mean_dx", { dy = dy.y }, { C = n.size.C }) }
    end,
    cost = function(n)
        return { flops = elements(n) * n.size.C, elements = elements(n) * (n.size.C + 1) }
    end,
    lower = "reduce", word = true,
    sample = "loss(function(out, batch) return mean(out * out) end)",
}

op "mean_dx" {
    doc = "dx = dy / C for each of the C elements of a row",
    ins = { "dy (...)" }, outs = { "y (..., C)" },
    internal = true, lower = "reduce",
    letters = function(n, seen) seen.C = n.attrs.C end,
    cost = function(n)
        return { flops = elements(n), elements = elements(n) * (n.size.C + 1) }
    end,
}

op "copy" {
    doc = "a copy, where a value needs a place of its own",
    ins = { "x (...)" }, outs = { "y (...)" },
    grad = function(_, _, dy) return { x = dy.y } end,
    internal = true, lower = "reduce",
    cost = function(n) return { flops = 0, elements = 2 * elements(n) } end,
}
