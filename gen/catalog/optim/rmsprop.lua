-- rmsprop: Tieleman and Hinton, 2012, with torch's arguments; eps is added outside the square root.
local common = require "catalog.optim_common"

optimizer "rmsprop" {
    doc = "g += weight_decay w; v = alpha v + (1 - alpha) g^2; d = g / (sqrt(v) + eps); w -= lr d, or "
        .. "buf = momentum buf + d; w -= lr buf; centered: v - (average of g)^2 under the root",
    fields = {
        common.lr(1e-2, 1e-7, 0.1),
        { name = "alpha", type = "num", default = 0.99, min = 0, below = 1, doc = "decay of v" },
        common.eps(1e-8, "added to sqrt(v)"), common.weight_decay(0), common.momentum(0),
        common.flag("centered", false, "divide by an estimate of the deviation"),
        common.flag("maximize", false, "climb instead of descend"),
    },
    scope = "element", zero = true, cycled = "momentum",
    state = function(o)
        local list = { "v" }
        if o.centered then list[2] = "average" end
        if o.momentum ~= 0 then list[#list + 1] = "buf" end
        return list
    end,
    update = function(o, w, g, s, lr)
        local list, spread = {}, var "v"
        g = common.gradient(o, w, g, list)
        list[#list + 1] = { "v", o.alpha * s.v + (1 - o.alpha) * g * g }
        if o.centered then
            list[#list + 1] = { "average", s.average + (1 - o.alpha) * (g - s.average) }
            spread = max(var "v" - var "average" * var "average", 0)      -- rounding may make it negative
        end
        local step = g / (sqrt(spread) + o.eps)
        if o.momentum ~= 0 then
            list[#list + 1] = { "buf", common.with_momentum(o, o.momentum * s.buf + step, s.buf) }
            step = common.with_momentum(o, var "buf", step)
        end
        list[#list + 1] = { "w", w - lr * step }
        return list
    end,
}
