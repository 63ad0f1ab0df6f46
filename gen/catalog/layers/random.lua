-- random: layers that draw random numbers for each row of a micro-batch.
local diag = require "base.diag"
local graph = require "graph.graph"

layer "dropout" {
    doc = "x / (1 - p), or 0 with probability p; in evaluation x. Drawn for each row, cycle and layer",
    fields = {
        { name = "p", type = "num", position = 1, min = 0, below = 1, required = true,
          doc = "the probability of a 0" },
    },
    apply = function(b, f, x)
        local rows = b.graph.inputs[1].shape[1]
        if x.shape[1] ~= rows then
            diag.fail(b.at, ("dropout: the value has shape %s, expected the %d rows of the batch as its "
                .. "first axis"):format(graph.shape_text(x.shape), rows), {})
        end
        if f.p == 0 then return x end
        return b:value("dropout", { x = x, facts = b.graph.facts },
            { p = f.p, name = b:draw_name("dropout") })
    end,
}
