-- adamax: Adam with the largest gradient in the place of v (Kingma and Ba, 2015), with torch's arguments.
local moments = require "catalog.moments"

optimizer "adamax" {
    doc = "g += weight_decay w; m moving average of g; u = max(beta2 u, |g| + eps); w -= lr m^ / u",
    fields = {
        moments.lr(2e-3), moments.betas(0.9, 0.999), moments.eps(1e-8, "added to |g|"), moments.weight_decay(0),
        moments.flag("maximize", false, "climb instead of descend"),
    },
    scope = "element", cycled = "betas",
    zero = false,                                   -- u becomes eps
    check = moments.check_betas,
    state = function() return { "m", "u" } end,
    update = function(o, w, g, s, lr, t)
        local list = {}
        g = moments.gradient(o, w, g, list)
        list[#list + 1] = { "m", moments.average(o.betas[1], s.m, g) }
        list[#list + 1] = { "u", max(o.betas[2] * s.u, abs(g) + o.eps) }
        list[#list + 1] = { "w", w - lr * (1 / moments.seen(o.betas[1], t)) * var "m" / var "u" }
        return list
    end,
}
