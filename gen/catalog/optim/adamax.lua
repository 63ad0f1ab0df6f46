-- adamax: Adam with the decayed maximum of |g| instead of v (Kingma and Ba, 2015), with torch's arguments.
local common = require "catalog.optim_common"

optimizer "adamax" {
    doc = "g += weight_decay w; m moving average of g; u = max(beta2 u, |g| + eps); w -= lr m^ / u",
    fields = {
        common.lr(2e-3, 1e-7, 0.1), common.betas(0.9, 0.999), common.eps(1e-8, "added to |g|"), common.weight_decay(0),
        common.flag("maximize", false, "climb instead of descend"),
    },
    scope = "element", cycled = "betas",
    zero = false,                                   -- g = 0 makes u = eps
    check = common.check_betas,
    state = function() return { "m", "u" } end,
    update = function(o, w, g, s, lr, t)
        local list = {}
        g = common.gradient(o, w, g, list)
        list[#list + 1] = { "m", common.average(o.betas[1], s.m, g) }
        list[#list + 1] = { "u", max(o.betas[2] * s.u, abs(g) + o.eps) }
        list[#list + 1] = { "w", w - common.step_size(lr, o.betas[1], t) * var "m" / var "u" }
        return list
    end,
}
