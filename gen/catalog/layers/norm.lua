-- norm: normalisation over the last axis; names and initial values are torch's.

local function ones(b, width) return b:param("weight", { width }, { kind = "value", value = 1 }) end

-- Appends an op whose results are named after the layer (ln_1.y, ln_1.rstd) and returns y.
local function named(b, op, ins, attrs)
    local names = {}
    for _, out in ipairs(b.ops[op].signature.outs) do names[out] = b:full_name(out) end
    return b:node(op, ins, attrs, names).outs.y.tensor
end

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
        return named(b, "layernorm", { x = x, weight = weight, bias = bias or nil }, { eps = f.eps })
    end,
}

layer "rmsnorm" {
    doc = "x / sqrt(average of x^2 + eps) weight over the last axis",
    named = true,
    fields = {
        { name = "eps", type = "num", default = 1e-6, above = 0, doc = "added to the average" },
    },
    apply = function(b, f, x)
        return named(b, "rmsnorm", { x = x, weight = ones(b, x.shape[#x.shape]) }, { eps = f.eps })
    end,
}
