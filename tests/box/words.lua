-- Words for the tests of the sandbox: a small version of the list that gagen passes to host.evaluate.
return {
    config = { "name", "data", "batch", "accumulate", "model", "init", "loss", "optimizer",
               "schedule", "clip", "train", "eval", "target" },
    layers = {
        { name = "linear", named = true }, { name = "layernorm", named = true },
        { name = "block", named = true }, { name = "times", named = true },
        { name = "residual", named = false }, { name = "dropout", named = false },
        { name = "attend", named = false }, { name = "flatten", named = false },
    },
    pointwise = { "relu", "tanh", "gelu", "exp", "log", "sqrt", "max", "where", "lt" },
    keyed = { "later" },
}
