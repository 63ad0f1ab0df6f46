-- norm: normalisation over the last axis; names and initial values as torch has them.

local function ones(b, width) return b:param("weight", { width }, { kind = "value", value = 1 }) end

layer "layernorm" {
    doc = "(x - mean) / sqrt(variance + eps) weight + bias over the last axis",
    named = true,
    fields = {
        { name = "eps", type = "num", default = 1e-5, above = 0, doc = "added to the variance" },
        { name = "bias", type = "bool", default = true, doc = "whether a bias is added" },
    },
    apply = function(b, f, x)
        local width = x.shape[#x.shape]
        local weight = ones(b, width)
        local bias = f.bias and b:param("bias", { width }, { kind = "value", value = 0 })
        return b:value("layernorm", { x = x, weight = weight, bias = bias or nil },
            { eps = f.eps }, b:full_name("y"))
    end,
}

layer "rmsnorm" {
    doc = "x / sqrt(average of x^2 + eps) weight over the last axis",
    named = true,
    fields = {
        { name = "eps", type = "num", default = 1e-6, above = 0, doc = "added to the average" },
    },
    apply = function(b, f, x)
        return b:value("rmsnorm", { x = x, weight = ones(b, x.shape[#x.shape]) },
            { eps = f.eps }, b:full_name("y"))
    end,
}
