-- rmsprop: Tieleman and Hinton, 2012, with torch's arguments; eps stands outside the root.
local moments = require "catalog.moments"

optimizer "rmsprop" {
    doc = "g += weight_decay w; v = alpha v + (1 - alpha) g^2; d = g / (sqrt(v) + eps); w -= lr d, or "
        .. "buf = momentum buf + d; w -= lr buf; centered: v - (average of g)^2 under the root",
    fields = {
        moments.lr(1e-2),
        { name = "alpha", type = "num", default = 0.99, min = 0, below = 1, doc = "decay of v" },
        moments.eps(1e-8, "added to sqrt(v)"), moments.weight_decay(0), moments.momentum(0),
        moments.flag("centered", false, "divide by an estimate of the deviation"),
        moments.flag("maximize", false, "climb instead of descend"),
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
        g = moments.gradient(o, w, g, list)
        list[#list + 1] = { "v", o.alpha * s.v + (1 - o.alpha) * g * g }
        if o.centered then
            list[#list + 1] = { "average", s.average + (1 - o.alpha) * (g - s.average) }
            spread = max(var "v" - var "average" * var "average", 0)      -- rounding may go below 0
        end
        local step = g / (sqrt(spread) + o.eps)
        if o.momentum ~= 0 then
            list[#list + 1] = { "buf", o.momentum * s.buf + step }
            step = var "buf"
        end
        list[#list + 1] = { "w", w - lr * step }
        return list
    end,
}
