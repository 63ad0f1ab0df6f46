-- random: layers that draw random numbers for each row of a micro-batch.

layer "dropout" {
    doc = "x / (1 - p), or 0 with probability p; in evaluation x. Drawn for each row, cycle and layer",
    fields = {
        { name = "p", type = "num", position = 1, min = 0, below = 1, required = true,
          doc = "the probability of a 0" },
    },
    apply = function(b, f, x)
        local name = b:draw_name("dropout", x)
        if f.p == 0 then return x end
        return b:value("dropout", { x = x, micro = b.graph.micro }, { p = f.p, name = name })
    end,
}
