-- cross_entropy: the usual loss of a classifier; the target is the index of the class, from 0.

loss "cross_entropy" {
    doc = "mean over the counted rows of -log softmax(out)[target]",
    fields = {},
    target = "class",
    rows = function(b, _, out, target)
        local node = b:node("cross_entropy", { logits = out, target = target }, nil,
            { y = "loss", lse = "loss_lse" })
        return node.outs.y.tensor
    end,
    hits = function(b, out, target)
        return b:value("hit", { logits = out, target = target }, nil, "hits")
    end,
}
