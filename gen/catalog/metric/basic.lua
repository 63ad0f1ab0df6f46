-- basic: the metrics of an evaluation, of its sums s (spec/metrics.lua says where each sum comes from).

-- The complaint about a metric of class numbers where the loss has none, or nil.
local function of_classes(c)
    return not (c.loss.rule and c.loss.rule.hits) and "needs a loss over classes" or nil
end

-- The complaint about a metric of numbers where the loss compares none, or nil.
local function of_numbers(c)
    return not (c.loss.rule and c.loss.rule.measures_errors)
        and "needs a loss that compares numbers: mse or smooth_l1" or nil
end

-- The complaint about a loss whose mean is not the log of a perplexity, or nil.
local function of_plain_cross_entropy(c)
    local loss = c.loss.fields
    local other = not (c.loss.rule and c.loss.rule.target == "class") and "the loss is none over classes"
        or loss.label_smoothing ~= 0 and "the loss has label_smoothing"
        or loss.class_weights and "the loss has class_weights"
        or c.loss.weight ~= "token" and ("the loss has weight = %q"):format(c.loss.weight)
    return other and ("is that of a plain cross_entropy, but %s: expected \"loss\""):format(other) or nil
end

metric "loss" {
    doc = "mean over the weight of the rows", better = "lower",
    value = function(s) return s.loss / s.weight end,
}

metric "accuracy" {
    doc = "share of targets that have the largest logit", better = "higher", share = true,
    check = of_classes,
    value = function(s) return s.hits / s.count end,
}

metric "f1" {
    doc = "F1 of class 1 of two classes", better = "higher", share = true,
    check = of_classes,
    check_classes = function(n)
        return n ~= 2 and ("is that of class 1 of two, the model gives %d classes: expected \"accuracy\""):format(n)
            or nil
    end,
    value = function(s)
        return where(gt(s.found, 0), 2 * s.found / (2 * s.found + s.count - s.hits), 0)
    end,
}

metric "perplexity" {
    doc = "e to the mean loss of a target", better = "lower",
    check = of_plain_cross_entropy,
    value = function(s) return exp(s.loss / s.weight) end,
}

metric "mae" {
    doc = "mean of the absolute errors of numbers", better = "lower",
    check = of_numbers,
    value = function(s) return s.errors / s.count end,
}

metric "rmse" {
    doc = "root of the mean of their squares", better = "lower",
    check = of_numbers,
    value = function(s) return sqrt(s.squares / s.count) end,
}

metric "top5" {
    doc = "share of targets with fewer than five greater logits than theirs", better = "higher", share = true,
    check = of_classes,
    check_classes = function(n)
        return n < 6 and ("of %d classes is always 1: expected a model of 6 or more, or \"accuracy\""):format(n) or nil
    end,
    value = function(s) return s.top5 / s.count end,
}

metric "r2" {
    doc = "1 - sum of the squared errors / sum of (target - mean of the targets)^2, over all numbers of all rows",
    better = "higher", share = true,
    check = of_numbers,
    value = function(s)
        return { { "spread", s.target_squares - s.targets * s.targets / s.count },
            { "r2", where(gt(s.spread, 0), 1 - s.squares / s.spread, s.undefined) } }
    end,
}
