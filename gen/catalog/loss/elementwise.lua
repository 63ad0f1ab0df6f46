-- elementwise: losses that compare each element of the model's output with a real target. The mean is over
-- elements, as torch's reduction "mean"; weight = "sample" divides by rows instead.

-- A loss that is one pointwise node of out and target; `derivative` is d value / d out. measures_errors: out is as
-- large as the target, so that an evaluation may compare them.
local function elementwise(name, entry)
    local value, derivative = entry.value, entry.derivative
    entry.target, entry.arity, entry.name = "real", 2, name
    entry.grad = function(f, dy, x, t) return dy * derivative(f, x, t), expr.lift(0) end
    entry.rows = function(b, f, out, target)
        return b:map({ out, target }, function(x, t) return value(f, x, t) end, "loss",
            { entry = entry, fields = f })
    end
    entry.samples = { ('loss { "%s" }'):format(name) }
    loss(name)(entry)
end

elementwise("mse", {
    measures_errors = true,
    doc = "(out - target)^2",
    fields = {},
    value = function(_, x, t) return (x - t) * (x - t) end,
    derivative = function(_, x, t) return 2 * (x - t) end,
})

elementwise("smooth_l1", {
    measures_errors = true,
    doc = "0.5 d^2 / beta where |d| < beta, else |d| - 0.5 beta; d = out - target",
    fields = { { name = "beta", type = "num", default = 1, above = 0,
        doc = "where the square ends and the line begins" } },
    value = function(f, x, t)
        local d = abs(x - t)
        return where(lt(d, f.beta), 0.5 / f.beta * d * d, d - 0.5 * f.beta)
    end,
    derivative = function(f, x, t)
        local d = x - t
        return where(lt(abs(d), f.beta), d / f.beta, where(lt(d, 0), -1, 1))
    end,
})

elementwise("bce", {
    doc = "binary cross-entropy of logits: max(out, 0) - out target + log(1 + e^-|out|)",
    fields = {},
    value = function(_, x, t) return max(x, 0) - x * t + log(1 + exp(-abs(x))) end,
    derivative = function(_, x, t) return 1 / (1 + exp(-x)) - t end,
})

elementwise("kl", {
    doc = "target (log target - out) for log-probabilities out; weight = \"sample\" is torch's batchmean",
    fields = {},
    value = function(_, x, t) return where(gt(t, 0), t * (log(t) - x), 0) end,
    derivative = function(_, _, t) return where(gt(t, 0), -t, 0) end,
})
