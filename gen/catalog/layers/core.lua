-- core: layers made of ops. `apply(b, fields, x, ...)` appends nodes through the builder b and returns
-- the result; parameters are named by the layer's path, with torch's suffixes and shapes.
-- `takes` lists the numbers of tensors a layer takes, "several" is one or more; default { 1 }.
-- Initial values are torch's defaults, drawn from (seed, name, element).

layer "linear" {
    doc = "x weight^T + bias; weight (out, in), bias (out)",
    named = true,
    fields = {
        { name = "out", type = "int", position = 1, min = 1, max = 2147483647, required = true,
          doc = "width of the result" },
        { name = "bias", type = "bool", default = true, doc = "whether a bias is added" },
    },
    apply = function(b, f, x)
        local width = x.shape[#x.shape]
        local bound = 1 / math.sqrt(width)     -- kaiming_uniform(a = sqrt 5) of torch.nn.Linear
        local weight = b:param("weight", { f.out, width }, { kind = "uniform", bound = bound })
        local bias = f.bias and b:param("bias", { f.out }, { kind = "uniform", bound = bound })
        return b:value("linear", { x = x, weight = weight, bias = bias or nil },
            nil, b:full_name("y"))
    end,
}
