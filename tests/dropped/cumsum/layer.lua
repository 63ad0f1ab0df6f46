-- cumsum: the layer of the op, for a test.

layer "cumsum" {
    doc = "sums along the last axis",
    fields = {},
    apply = function(b, _, x) return b:value("cumsum", { x = x }, { back = false }) end,
}
