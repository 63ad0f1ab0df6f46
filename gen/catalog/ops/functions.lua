-- functions: elementary functions and the activations made of them. Applied to numbers they are evaluated while the
-- spec is read, applied to tensors they become nodes.

local function sigma(x) return 1 / (1 + exp(-x)) end

pointwise "exp" {
    doc = "e^x",
    arity = 1, value = function(_, x) return exp(x) end,
    grad = function(_, dy, _, y) return dy * y end,
    sample = "exp {}",
}

pointwise "log" {
    doc = "natural logarithm: math.log(x), since `log` configures",
    arity = 1, value = function(_, x) return log(x) end,
    grad = function(_, dy, x) return dy / x end,
    sample = "function(x) return math.log(x * x + 1) end",
}

pointwise "sqrt" {
    doc = "square root",
    arity = 1, value = function(_, x) return sqrt(x) end,
    grad = function(_, dy, _, y) return 0.5 * dy / y end,
    sample = "function(x) return sqrt(x * x + 1) end",
}

pointwise "sin" {
    doc = "sine",
    arity = 1, value = function(_, x) return sin(x) end,
    grad = function(_, dy, x) return dy * cos(x) end,
    sample = "sin {}",
}

pointwise "cos" {
    doc = "cosine",
    arity = 1, value = function(_, x) return cos(x) end,
    grad = function(_, dy, x) return -(dy * sin(x)) end,
    sample = "cos {}",
}

pointwise "abs" {
    doc = "|x|; the gradient at 0 is 0",
    arity = 1, value = function(_, x) return abs(x) end,
    grad = function(_, dy, x) return where(gt(x, 0), dy, where(lt(x, 0), -dy, 0)) end,
    sample = "abs {}",
}

pointwise "pow" {
    doc = "a^b, also written a ^ b; a > 0 where b is not a whole number",
    arity = 2, value = function(_, a, b) return pow(a, b) end,
    grad = function(_, dy, a, b, y) return dy * b * pow(a, b - 1), dy * y * log(a) end,
    sample = "function(x) return (x * x + 1) ^ (0.5 * x) end",
}

pointwise "sigmoid" {
    doc = "1 / (1 + e^-x)",
    arity = 1, value = function(_, x) return sigma(x) end,
    grad = function(_, dy, _, y) return dy * y * (1 - y) end,
    sample = "sigmoid {}",
}

pointwise "silu" {
    doc = "x sigmoid(x), also called swish",
    arity = 1, value = function(_, x) return x / (1 + exp(-x)) end,
    grad = function(_, dy, x) return dy * sigma(x) * (1 + x * (1 - sigma(x))) end,
    sample = "silu {}",
}

pointwise "leaky_relu" {
    doc = "x, or slope x where x is not above 0; the gradient at 0 is slope, as in PyTorch",
    arity = 1, fields = { { name = "slope", type = "num", position = 1, default = 0.01,
        doc = "factor below 0" } },
    value = function(f, x) return where(gt(x, 0), x, f.slope * x) end,
    grad = function(f, dy, x) return where(gt(x, 0), dy, f.slope * dy) end,
    sample = "leaky_relu { 0.2 }",
}

pointwise "square" {
    doc = "x^2",
    arity = 1, value = function(_, x) return x * x end,
    grad = function(_, dy, x) return 2 * dy * x end,
    sample = "square {}",
}

pointwise "softplus" {
    doc = "log(1 + e^(beta x)) / beta, and x itself where beta x is above the threshold",
    arity = 1, fields = {
        { name = "beta", type = "num", position = 1, default = 1, above = 0, doc = "steepness" },
        { name = "threshold", type = "num", default = 20, doc = "largest beta x that is not taken as it is" },
    },
    value = function(f, x)
        return where(gt(f.beta * x, f.threshold), x, log1p(exp(f.beta * x)) / f.beta)
    end,
    grad = function(f, dy, x) return where(gt(f.beta * x, f.threshold), dy, dy * sigma(f.beta * x)) end,
    sample = "softplus {}", samples = { "softplus { 2, threshold = 0.5 }" },
}

pointwise "elu" {
    doc = "x, or alpha (e^x - 1) where x is not above 0",
    arity = 1, fields = { { name = "alpha", type = "num", position = 1, default = 1,
        doc = "minus the limit far below 0" } },
    value = function(f, x) return where(gt(x, 0), x, f.alpha * expm1(x)) end,
    grad = function(f, dy, x, y) return where(gt(x, 0), dy, dy * (y + f.alpha)) end,
    sample = "elu {}", samples = { "elu { 0.7 }" },
}
