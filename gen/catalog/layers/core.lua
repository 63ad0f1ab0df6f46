-- core: the linear layer and the parameter alone. Of every layer, `apply(b, fields, x, ...)` appends nodes through the
-- builder b and returns the result; parameters are named by the layer's path, with torch's suffixes and shapes.
-- `takes` lists the possible numbers of input tensors, "several" is one or more; default { 1 }. The word of a layer
-- that takes none gives its tensor at once.
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

layer "parameter" {
    usage = "parameter \"name\" { extent, ..., value = 0 }",
    doc = "a trained tensor, the same for all rows; broadcast to what it meets, which has the rows as one more axis",
    named = true, takes = { 0 },
    fields = {
        { name = "extents", type = "int", min = 1, max = 2147483647, rest = true, required = true,
          doc = "its extents, without the rows" },
        { name = "value", type = "num", default = 0, doc = "the first value of each element, unless init has another" },
    },
    example = 'local y = x * parameter "gamma" { 8, value = 1 }',
    apply = function(b, f) return b:param("", f.extents, { kind = "value", value = f.value }) end,
}
