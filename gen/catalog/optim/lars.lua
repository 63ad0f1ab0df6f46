-- lars: momentum with a rate for each tensor (You, Gitman and Ginsburg, 2017), as Colossal-AI defines it: the ratio
-- is at most 50, the step of an element at most 10.
local common = require "catalog.optim_common"

optimizer "lars" {
    doc = "r = min(50, eeta ||w|| / (||g|| + weight_decay ||w|| + epsilon)), the norms of each tensor; d = g + "
        .. "weight_decay w, between -10 and 10; buf = momentum buf + d (first: d); w -= lr r buf",
    fields = {
        common.lr(1e-3, 1e-4, 1000), common.momentum(0),
        { name = "eeta", type = "num", default = 1e-3, above = 0, max = 1, doc = "the trust in a tensor's rate" },
        common.weight_decay(0, "added to g as weight_decay w, where lars is on"),
        { name = "epsilon", type = "num", default = 0, min = 0, doc = "added to the divisor of r" },
        common.flag("lars", true, "false: r = 1 and no decay"),
    },
    scope = "tensor", zero = true, cycled = "momentum",
    state = function(o) return o.momentum ~= 0 and { "buf" } or {} end,
    sums = function(o, w, g)
        if not o.lars then return end       -- then nothing of the tensor is measured
        local w_norm, g_norm = sqrt(var "w_squares"), sqrt(var "g_squares")
        local ratio = o.eeta * w_norm / (g_norm + o.weight_decay * w_norm + o.epsilon)
        ratio = where(gt(var "w_squares", 0), where(gt(var "g_squares", 0), min(ratio, 50), 1), 1)
        return { statements = {}, sums = { { "w_squares", w * w }, { "g_squares", g * g } },
            scales = { { "ratio", ratio } } }
    end,
    update = function(o, w, g, s, lr)
        local decayed = o.lars and o.weight_decay ~= 0 and g + o.weight_decay * w or g
        local list, d = {}, var "d"
        list[1] = { "d", where(gt(decayed, 10), 10, where(lt(decayed, -10), -10, decayed)) }     -- NaN stays NaN
        if o.momentum ~= 0 then
            -- the buffer starts at 0, so the first value is d
            list[#list + 1] = { "buf", common.with_momentum(o, o.momentum * s.buf + d, s.buf) }
            d = common.with_momentum(o, var "buf", d)
        end
        list[#list + 1] = { "w", w - (o.lars and lr * var "ratio" or lr) * d }
        return list
    end,
}
