-- accumulate: adds the gradient of a micro-step to that of the cycle, where the kernel of the gradient cannot.
local graph = require "graph.graph"

op "accumulate" {
    doc = "y + x; the rounding errors are summed in the residue, which the last micro-step adds (Knuth's TwoSum, "
        .. "after Kahan, Babuska and Neumaier)",
    ins = { "x (*)" }, outs = { "y (S)", "residue (S)" },
    letters = function(n, size) size.S = n.ins.x.shape end,
    internal = true, never_adds = true, ends = true, lower = "accumulate",
    cost = function(n)
        local elements = graph.elements(n.size.S)
        return { flops = 7 * elements, elements = 5 * elements }
    end,
}

op "accumulate_half" {
    doc = "y + x, rounded to 16 bits: to the nearest; or, with micro, up or down at random for each element",
    ins = { "x (*)", "micro micro (1) ?" }, outs = { "y (S)" },
    letters = function(n, size) size.S = n.ins.x.shape end,
    internal = true, never_adds = true, draws = true, lower = "accumulate", half = "y",
    cost = function(n)
        local elements = graph.elements(n.size.S)
        return { flops = elements, elements = 3 * elements }
    end,
}
