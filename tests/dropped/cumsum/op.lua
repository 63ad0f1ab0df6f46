-- cumsum: an op of its own, for a test: sums along the last axis. It carries what targets need of it.
local graph = require "graph.graph"

local function rows(node) return graph.elements(node.size.lead or {}) end

op "cumsum" {
    doc = "y[c] = x[1] + .. + x[c] over the last axis; with attrs.back the sums run from its end",
    ins = { "x (..., C)" }, outs = { "y (..., C)" },
    grad = function(b, n, dy) return { x = b:value("cumsum", { x = dy.y }, { back = not n.attrs.back }) } end,
    cost = function(n) return { flops = rows(n) * n.size.C, elements = 2 * rows(n) * n.size.C } end,
    sample = "cumsum {}",
    lower = "cumsum",
    arguments = function(node, how)
        return { rows = rows(node), columns = node.size.C, back = node.attrs.back, store = how.store("y[i]", "sum") }
    end,
    launch = function(node) return { over = rows(node) } end,
}
