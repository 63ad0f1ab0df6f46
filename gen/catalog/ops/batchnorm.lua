-- batchnorm: normalises each channel over the rows of a group and the axes behind the channels.
-- x is (B, C, ...) with S values per row and channel; G = B / rows groups have n = rows S values of a channel each.
-- Training normalises with the group's mean and variance and updates the running ones; evaluation normalises with
-- the running ones.
-- With N = (x - mean) rstd, g = dy weight and averages over the group:
--   dx = rstd (g - average(g) - N average(g N)),  dweight = sum of dy N,  dbias = sum of dy
-- With sync_batchnorm (pass statistics) averages are over the groups of all ranks: a rank gives (count, mean, var),
-- then the sums of its group, and all ranks merge those of all in the order of the ranks. dweight and dbias are sums
-- over the own rows, as other gradients are.
local graph = require "graph.graph"

local function sizes(n, size)
    local shape = n.ins.x.shape
    size.X, size.B, size.C = shape, shape[1], shape[2]
    size.S = graph.elements(shape) // (shape[1] * shape[2])
    size.G = shape[1] // n.attrs.rows
end

-- Operations for each element, and what a node reads and writes besides what stands behind it.
local function cost(flops)
    return function(n)
        local moved = 0
        for _, name in ipairs(n.signature.ins) do
            moved = moved + (n.ins[name] and not name:find "^with_" and graph.elements(n.ins[name].shape) or 0)
        end
        for _, name in ipairs(n.signature.outs) do
            moved = moved + (n.outs[name] and name ~= "behind" and graph.elements(n.outs[name].tensor.shape) or 0)
        end
        return { flops = flops * (n.ins.tiles and graph.elements(n.ins.tiles.shape) or graph.elements(n.size.X)),
            elements = moved }
    end
end

op "batchnorm_stats" {
    doc = "average, variance, 1 / sqrt(variance + eps) of each channel in each group; in evaluation the running ones",
    ins = { "x (*)", "running_mean (C)", "running_var (C)", "micro micro (1)" },
    outs = { "mean full (G, C)", "var full (G, C)", "rstd full (G, C)" },
    letters = sizes, internal = true, cost = cost(4), lower = "batchnorm",
    octets = "x", rounds = true, half = "x",
}

op "batchnorm" {
    doc = "(x - mean) rstd weight + bias for each channel, mean and rstd those of the row's group",
    ins = { "x (*)", "weight (C)", "bias (C)", "mean (G, C)", "rstd (G, C)" }, outs = { "y (X)" },
    letters = sizes,
    grad = function(b, n, dy)
        local ins = { dy = dy.y, x = n.ins.x, mean = n.ins.mean, rstd = n.ins.rstd }
        local sums = b:node("batchnorm_sums", ins, n.attrs).outs
        local sum, moment = sums.sum.tensor, sums.moment.tensor
        local joined, all = n.ins.mean.def.outs, sums
        if joined.count then
            all = b:node("batchnorm_join_sums", { own_sum = sum, own_moment = moment }).outs
            all.sum.tensor.def.fence = true
        end
        return { weight = b:value("column_sum", { x = moment }), bias = b:value("column_sum", { x = sum }),
            x = b:value("batchnorm_dx", { dy = dy.y, x = n.ins.x, weight = n.ins.weight, mean = n.ins.mean,
                rstd = n.ins.rstd, sum = all.sum.tensor, moment = all.moment.tensor,
                count = joined.count and joined.count.tensor }, n.attrs) }
    end,
    cost = cost(4), lower = "batchnorm", octets = "x y", rounds = true, half = "x y",
    sample = [[function(x)
        local y = batchnorm 'bn' {} (reshape { 2, 2, 3 } (linear 'planes' { 12 } (x)))
        return flatten {} (tanh(y))
    end]],
    samples = {
        "function(x) return tanh(batchnorm 'bn' { rows = 3, eps = 0.3 } (tanh(x))) end",
    },
}

op "batchnorm_sums" {
    doc = "the sums of dy and of dy (x - mean) rstd over each group",
    ins = { "dy (*)", "x (*)", "mean (G, C)", "rstd (G, C)" }, outs = { "sum full (G, C)", "moment full (G, C)" },
    letters = sizes, internal = true, cost = cost(4), lower = "batchnorm",
    octets = "dy x", rounds = true, half = "dy x",
}

op "batchnorm_dx" {
    doc = "weight rstd (dy - sum / n - N moment / n) with N = (x - mean) rstd; n is the count, if given",
    ins = { "dy (*)", "x (*)", "weight (C)", "mean (G, C)", "rstd (G, C)", "sum (G, C)", "moment (G, C)",
        "count (1) ?" },
    outs = { "y (X)" },
    letters = sizes, internal = true, cost = cost(6), lower = "batchnorm", octets = "dy x y",
    rounds = true, half = "dy x y",
}

op "batchnorm_join" {
    doc = "average, variance and 1 / sqrt(variance + eps) over the rows of all ranks, and the count of their values; "
        .. "in evaluation the own ones, which are the running ones",
    ins = { "own_mean (G, C)", "own_var (G, C)", "micro micro (1)" },
    outs = { "mean full (G, C)", "var full (G, C)", "rstd full (G, C)", "count full (1)" },
    internal = true, needs = "gathers", lower = "batchnorm", computed_once = true,
    exchanges = function(n) return 1 + 2 * n.size.G * n.size.C end,
    cost = function(n)
        return { flops = 9 * n.size.G * n.size.C, elements = 5 * n.size.G * n.size.C + 1 }
    end,
}

op "batchnorm_join_sums" {
    doc = "two sums for each channel, over all ranks in their order",
    ins = { "own_sum (G, C)", "own_moment (G, C)" }, outs = { "sum full (G, C)", "moment full (G, C)" },
    internal = true, needs = "gathers", lower = "batchnorm", computed_once = true,
    exchanges = function(n) return 2 * n.size.G * n.size.C end,
    cost = function(n)
        return { flops = 2 * n.size.G * n.size.C, elements = 4 * n.size.G * n.size.C }
    end,
}

op "batchnorm_collect" {
    doc = "average and variance of all values of the cycle so far: k groups merged with one more, d = its mean - mean: "
        .. "mean + d / (k + 1), (k var + its var) / (k + 1) + d^2 k / (k + 1)^2",
    ins = { "mean (G, C)", "var (G, C)", "micro micro (1)" },
    outs = { "running_mean (C)", "running_var (C)", "batches (1)" },
    internal = true, lower = "batchnorm",
    cost = function(n)
        return { flops = 9 * n.size.G * n.size.C, elements = (2 * n.size.G + 4) * n.size.C }
    end,
}

op "batchnorm_add" {
    doc = "what the groups add to the sums of a cycle: d = mean - the running one, var + d^2, and how many they are; "
        .. "sums, so that ranks add theirs",
    ins = { "mean (G, C)", "var (G, C)", "centre (C)", "micro micro (1)" },
    outs = { "running_mean (C)", "running_var (C)", "batches (1)" },
    internal = true, lower = "batchnorm",
    cost = function(n)
        return { flops = 5 * n.size.G * n.size.C, elements = (2 * n.size.G + 5) * n.size.C }
    end,
}

op "batchnorm_running" {
    doc = "running = (1 - momentum) running + momentum (the group's), variances over n - 1, where n is the count, if "
        .. "given; batches counts the groups",
    ins = { "mean (G, C)", "var (G, C)", "micro micro (1)", "count (1) ?" },
    outs = { "running_mean (C)", "running_var (C)", "batches (1)" },
    internal = true, lower = "batchnorm",
    cost = function(n)
        return { flops = 6 * n.size.G * n.size.C, elements = (2 * n.size.G + 4) * n.size.C }
    end,
}
