-- loss: a loss gives one value per target. `tally` adds the losses and their weights to the sums of the cycle;
-- `loss_seed` starts the backward pass with scale / nominal weight for each target that counts.
local graph = require "graph.graph"

local function elements(node) return graph.elements(node.size.lead or {}) end

op "cross_entropy" {
    doc = "-log softmax(logits)[target] per row; a row whose target is `ignore` gives 0. With "
        .. "attrs.smoothing s and attrs.weights w, as torch: (1 - s) w[target] times that, and s / C "
        .. "times the sum over all classes c of w[c] (-log softmax(logits)[c])",
    ins = { "logits (..., C)", "target i32 (...)" }, outs = { "y full (...)", "lse full (...)" },
    grad = function(b, n, dy)
        return { logits = b:value("cross_entropy_dx", { dy = dy.y, logits = n.ins.logits,
            target = n.ins.target, lse = n.outs.lse.tensor }, n.attrs) }
    end,
    cost = function(n)
        return { flops = 4 * elements(n) * n.size.C, elements = elements(n) * (n.size.C + 3) }
    end,
    lower = "loss", half = "logits", computed_once = true, sample = "loss",
    samples = { 'loss { "cross_entropy", label_smoothing = 0.3 }',
        'loss { "cross_entropy", class_weights = { 0.5, 2, 1 } }',
        'loss { "cross_entropy", class_weights = { 0.5, 2, 1 }, label_smoothing = 0.1, ignore = 1 }' },
}

op "cross_entropy_dx" {
    doc = "dlogits = dy (softmax(logits) - one_hot(target))",
    ins = { "dy (...)", "logits (..., C)", "target i32 (...)", "lse (...)" },
    outs = { "y (..., C)" },
    internal = true, lower = "loss", half = "logits y",
    cost = function(n)
        return { flops = 4 * elements(n) * n.size.C, elements = elements(n) * (2 * n.size.C + 3) }
    end,
}

-- attrs of the next four ops, and of tally_values: weight, the field of the word loss; weights, of the classes, or nil.
-- Ignored targets and those of rows from micro->rows on have weight 0.
op "loss_seed" {
    doc = "the gradient of the cycle's mean loss with respect to each loss",
    ins = { "target i32 (...) ?", "micro micro (1)", "seed ()", "sums f64 (*) ?" }, outs = { "y full (...)" },
    internal = true, lower = "loss",
    letters = function(n, seen) seen.lead = n.attrs.shape end,
    cost = function(n) return { flops = 0, elements = 2 * elements(n) } end,
}

op "micro_weight" {
    doc = "the weight of the micro-step, for a loss_seed that runs before the losses are computed",
    ins = { "target i32 (...)", "micro micro (1)" }, outs = { "sums f64 (*)" },
    internal = true, lower = "loss",
    cost = function(n) return { flops = elements(n), elements = elements(n) } end,
}

op "tally" {
    doc = "adds the losses and their weight to the sums of the cycle",
    ins = { "loss (...)", "target i32 (...) ?", "micro micro (1)" }, outs = { "sums f64 (*)" },
    internal = true, lower = "loss",
    cost = function(n) return { flops = 2 * elements(n), elements = 2 * elements(n) } end,
}

op "tally_hits" {
    doc = "adds the hits to attrs.sum, a sum of an evaluation; attrs.f1: those of class 1 too",
    ins = { "hits (...)", "target i32 (...)", "micro micro (1)" }, outs = { "sums f64 (*)" },
    internal = true, lower = "loss",
    cost = function(n) return { flops = elements(n), elements = 2 * elements(n) } end,
}

op "tally_errors" {
    doc = "adds the errors, which are 0 or more, and their squares to the sums of an evaluation",
    ins = { "errors (...)", "micro micro (1)" }, outs = { "sums f64 (*)" },
    internal = true, lower = "loss",
    cost = function(n) return { flops = 3 * elements(n), elements = elements(n) } end,
}

op "tally_spread" {
    doc = "adds the targets less the shift, and their squares, to the sums of an evaluation",
    ins = { "target any (...)", "micro micro (1)" }, outs = { "sums f64 (*)" },
    internal = true, lower = "loss",
    cost = function(n) return { flops = 4 * elements(n), elements = elements(n) } end,
}

op "tally_values" {
    doc = "adds values of a row, attrs.of_row, times the weights of its losses, attrs.each, to attrs.sum, a sum of an "
        .. "evaluation: as many values as losses weigh as these, others as their mean with all losses of the row",
    ins = { "values (*)", "target i32 (*) ?", "micro micro (1)" }, outs = { "sums f64 (*)" },
    internal = true, lower = "loss",
    cost = function(n)
        local count = graph.elements(n.ins.values.shape)
        return { flops = 2 * count, elements = 2 * count }
    end,
}

op "hit" {
    doc = "1 where the largest logit is the target's, else 0",
    ins = { "logits (..., C)", "target i32 (...)" }, outs = { "y full (...)" },
    internal = true, lower = "loss", half = "logits",
    cost = function(n)
        return { flops = elements(n) * n.size.C, elements = elements(n) * (n.size.C + 2) }
    end,
}

op "top_hit" {
    doc = "1 where fewer than attrs.k classes have a greater logit than the target's, which is a number, else 0",
    ins = { "logits (..., C)", "target i32 (...)" }, outs = { "y full (...)" },
    internal = true, lower = "loss", half = "logits",
    cost = function(n)
        return { flops = elements(n) * n.size.C, elements = elements(n) * (n.size.C + 2) }
    end,
}
