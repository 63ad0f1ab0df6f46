-- core: the linear layer. Of every layer, `apply(b, fields, x, ...)` appends nodes through the builder b and
-- returns the result; parameters are named by the layer's path, with torch's suffixes and shapes.
-- `takes` lists the possible numbers of input tensors, "several" is one or more; default { 1 }.
-- Initial values are torch's defaults, drawn from (seed, name, element).

layer "linear" {
    doc = "x weight^T + bias; weight (out, in), or (in, out) if stored so; bias (out)",
    named = true,
    fields = {
        { name = "out", type = "int", position = 1, min = 1, max = 2147483647, required = true,
          doc = "width of the result" },
        { name = "bias", type = "bool", default = true, doc = "whether a bias is added" },
        { name = "store", type = "str", default = "out_in", values = { "out_in", "in_out" },
          doc = "order of the weight's axes in memory and in checkpoints" },
    },
    apply = function(b, f, x)
        local width = x.shape[#x.shape]
        local bound = 1 / math.sqrt(width)     -- torch.nn.Linear: kaiming_uniform(a = sqrt 5)
        local in_out = f.store == "in_out"
        local weight = b:param("weight", in_out and { width, f.out } or { f.out, width },
            { kind = "uniform", bound = bound })
        local bias = f.bias and b:param("bias", { f.out }, { kind = "uniform", bound = bound })
        return b:value(in_out and "linear_in_out" or "linear", { x = x, weight = weight, bias = bias or nil },
            nil, b:full_name("y"))
    end,
}
