-- pointwise: ops of one value per element, as expressions. `value(fields, x1 [, x2])` is the result y,
-- `grad(fields, dy, x1 [, x2], y)` the gradient of each input. A gradient that reads y and no x keeps only y in memory.

pointwise "relu" {
    doc = "max(x, 0), NaN stays NaN; the gradient at 0 is 0",
    arity = 1, value = function(_, x) return where(lt(x, 0), 0, x) end,
    grad = function(_, dy, _, y) return where(le(y, 0), 0, dy) end,
    sample = "relu {}",
}

pointwise "tanh" {
    doc = "hyperbolic tangent",
    arity = 1, value = function(_, x) return tanh(x) end,
    grad = function(_, dy, _, y) return dy * (1 - y * y) end,
    sample = "tanh {}",
}

local ROOT_2_OVER_PI = 0.7978845608028653558
local ROOT_HALF = 0.70710678118654752440
local INV_ROOT_2PI = 0.39894228040143267794

pointwise "gelu" {
    doc = "x Phi(x): erf form, or the tanh approximation (Hendrycks and Gimpel, 2016)",
    arity = 1, fields = { { name = "form", type = "str", position = 1, default = "erf",
        values = { "erf", "tanh" }, doc = "which formula" } },
    value = function(f, x)
        if f.form == "erf" then return 0.5 * x * (1 + erf(x * ROOT_HALF)) end
        return 0.5 * x * (1 + tanh(ROOT_2_OVER_PI * (x + 0.044715 * x * x * x)))
    end,
    grad = function(f, dy, x)
        if f.form == "erf" then
            return dy * (0.5 * (1 + erf(x * ROOT_HALF)) + x * INV_ROOT_2PI * exp(-0.5 * x * x))
        end
        local t = tanh(ROOT_2_OVER_PI * (x + 0.044715 * x * x * x))
        return dy * (0.5 * (1 + t) +
            0.5 * x * (1 - t * t) * ROOT_2_OVER_PI * (1 + 0.134145 * x * x))
    end,
    sample = "gelu {}", samples = { 'gelu { "tanh" }' },
}

pointwise "scale" {
    doc = "a constant factor",
    arity = 1, fields = { { name = "factor", type = "num", position = 1, required = true,
        doc = "the factor" } },
    value = function(f, x) return f.factor * x end,
    grad = function(f, dy) return f.factor * dy end,
    sample = "scale { 0.5 }",
}

pointwise "add" {
    doc = "a + b",
    arity = 2, value = function(_, a, b) return a + b end,
    grad = function(_, dy) return dy, dy end,
    sample = "function(x) return linear 'a' { 5 } (x) + linear 'b' { 5 } (x) end",
}

pointwise "sub" {
    doc = "a - b",
    arity = 2, value = function(_, a, b) return a - b end,
    grad = function(_, dy) return dy, -dy end,
    sample = "function(x) return linear 'a' { 5 } (x) - linear 'b' { 5 } (x) end",
}

pointwise "mul" {
    doc = "a b",
    arity = 2, value = function(_, a, b) return a * b end,
    grad = function(_, dy, a, b) return dy * b, dy * a end,
    sample = "function(x) return linear 'a' { 5 } (x) * linear 'b' { 5 } (x) end",
    samples = { [[function(x)
        local a, b = reshape { 2, 3 } (linear "a" { 6 } (x)), reshape { 2, 1 } (linear "b" { 2 } (x))
        return flatten {} (a * b * reshape { 1, 3 } (linear "c" { 3 } (x)))
    end]] },
}

pointwise "neg" {
    doc = "-x",
    arity = 1, value = function(_, x) return -x end,
    grad = function(_, dy) return -dy end,
    sample = "function(x) return -linear 'a' { 5 } (x) end",
}

pointwise "div" {
    doc = "a / b",
    arity = 2, value = function(_, a, b) return a / b end,
    grad = function(_, dy, a, b) return dy / b, -(dy * a / (b * b)) end,
    sample = "function(x) return linear 'a' { 5 } (x) / (linear 'b' { 5 } (x) + 4) end",
}
