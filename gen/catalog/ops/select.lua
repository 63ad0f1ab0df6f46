-- select: comparisons, which give 1 or 0, and ops that choose one of several values. No gradient flows through a
-- comparison or the condition of `where`.

local function comparison(name, sign, holds)
    pointwise(name) {
        doc = ("1 where a %s b, else 0; NaN compares as 0"):format(sign),
        arity = 2, value = function(_, a, b) return where(holds(a, b), 1, 0) end,
        grad = function() end,
        sample = ("function(x) return where(%s(x, 0.1), x * x, 3 * x) end"):format(name),
    }
end

comparison("lt", "<", lt)
comparison("le", "<=", le)
comparison("gt", ">", gt)
comparison("ge", ">=", ge)
comparison("eq", "==", eq)

pointwise "where" {
    doc = "where(condition, a, b): a where the condition is not 0, else b",
    arity = 3, value = function(_, c, a, b) return where(eq(c, 0), b, a) end,
    grad = function(_, dy, c) return nil, where(eq(c, 0), 0, dy), where(eq(c, 0), dy, 0) end,
    sample = "function(x) return where(gt(x, 0.2), tanh(x), 2 * x) end",
}

pointwise "min" {
    doc = "the lesser of a and b, NaN if one is NaN; equal values share the gradient",
    arity = 2, value = function(_, a, b) return where(lt(b, a), b, where(le(a, b), a, a + b)) end,
    grad = function(_, dy, a, b)
        local tie = where(eq(a, b), 0.5 * dy, 0)
        return where(lt(a, b), dy, tie), where(lt(b, a), dy, tie)
    end,
    sample = "function(x) return min(linear 'a' { 5 } (x), linear 'b' { 5 } (x)) end",
}

pointwise "max" {
    doc = "the greater of a and b, NaN if one is NaN; equal values share the gradient",
    arity = 2, value = function(_, a, b) return where(gt(b, a), b, where(ge(a, b), a, a + b)) end,
    grad = function(_, dy, a, b)
        local tie = where(eq(a, b), 0.5 * dy, 0)
        return where(gt(a, b), dy, tie), where(gt(b, a), dy, tie)
    end,
    sample = "function(x) return max(linear 'a' { 5 } (x), linear 'b' { 5 } (x)) end",
}

pointwise "clamp" {
    doc = "x limited to min .. max; no gradient outside, all of it at a bound",
    arity = 1, fields = {
        { name = "min", type = "num", doc = "lower bound" },
        { name = "max", type = "num", doc = "upper bound" },
    },
    check = function(f)
        if not f.min and not f.max then return "expected min, max or both" end
        if f.min and f.max and f.min > f.max then return "min is above max" end
    end,
    value = function(f, x)
        local y = f.max and where(gt(x, f.max), f.max, x) or x
        return f.min and where(lt(x, f.min), f.min, y) or y
    end,
    grad = function(f, dy, x)
        local d = f.max and where(gt(x, f.max), 0, dy) or dy
        return f.min and where(lt(x, f.min), 0, d) or d
    end,
    sample = "clamp { min = -0.3, max = 0.4 }", samples = { "clamp { min = 0 }", "clamp { max = 0.1 }" },
}
