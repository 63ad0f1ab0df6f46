-- embedding: looks up rows of a table by ids. For the gradient the places of the ids are sorted by id; each row of
-- the table gets the sum over its places, in an order that the shapes fix, or 0.
local graph = require "graph.graph"

local function ids_of(n) return graph.elements(n.size.lead) end

op "embedding" {
    doc = "y = weight[ids]",
    ins = { "ids i32 (...)", "weight (R, C)" }, outs = { "y (..., C)" },
    grad = function(b, n, dy)
        local order = b:node("id_order", { ids = n.ins.ids }, { rows = n.size.R }).outs
        return { weight = b:value("embedding_dw", { dy = dy.y, first = order.first.tensor,
            order = order.order.tensor }, { rows = n.size.R, padding = n.attrs.padding }) }
    end,
    cost = function(n) return { flops = 0, elements = ids_of(n) * (2 * n.size.C + 1) } end,
    lower = "embedding", half = "y",
    sample = "function(x) return x * mean { axis = 2 } (embedding 'e' { 4, 5 } (batch.ids)) end",
}

op "id_order" {
    doc = "the places of the ids sorted by id, equal ids in ascending order; the places of row r begin at first[r]",
    ins = { "ids i32 (...)" }, outs = { "first i32 (F)", "order i32 (N)" },
    letters = function(n, size) size.F, size.N = n.attrs.rows + 1, graph.elements(size.lead) end,
    internal = true, lower = "embedding",
    cost = function(n) return { flops = 0, elements = 4 * n.size.N + 2 * n.size.F } end,
}

op "embedding_dw" {
    doc = "the sum of dy over the places of each row of the table; 0 for the row of padding",
    ins = { "dy (..., C)", "first i32 (F)", "order i32 (N)" }, outs = { "y (R, C)" },
    letters = function(n, size) size.R = n.attrs.rows end,
    internal = true, lower = "embedding", half = "dy",
    cost = function(n)
        local s = n.size
        return { flops = s.N * s.C, elements = (s.N + s.R) * s.C }
    end,
}
