-- random: random draws for each row. A draw is a function of (seed, name, iteration, cycle, row,
-- element), so a gradient draws the same again and nothing is kept (runtime/base/rng.h, ga_draw_key).
local graph = require "graph.graph"

op "dropout" {
    doc = "x / (1 - p), or 0 with probability p, drawn for each element; in evaluation x",
    ins = { "x (...)", "micro micro (1)" }, outs = { "y (...)" },
    draws = true,
    grad = function(b, n, dy)
        return { x = b:value("dropout", { x = dy.y, micro = n.ins.micro }, n.attrs) }
    end,
    cost = function(n)
        local count = graph.elements(n.size.lead)
        return { flops = 2 * count, elements = 2 * count }
    end,
    lower = "random", half = "x y", sample = "dropout(0.3)",
}
