-- adadelta: Zeiler, 2012, with torch's arguments.
local common = require "catalog.optim_common"

optimizer "adadelta" {
    doc = "g += weight_decay w; v = rho v + (1 - rho) g^2; d = sqrt(u + eps) / sqrt(v + eps) g; "
        .. "u = rho u + (1 - rho) d^2; w -= lr d",
    fields = {
        common.lr(1.0, 1e-3, 100),
        { name = "rho", type = "num", default = 0.9, min = 0, below = 1, doc = "decay of v and u" },
        common.eps(1e-6, "added under both roots"), common.weight_decay(0),
        common.flag("maximize", false, "climb instead of descend"),
    },
    scope = "element", zero = true,
    state = function() return { "v", "u" } end,
    update = function(o, w, g, s, lr)
        local list, change = {}, var "change"
        g = common.gradient(o, w, g, list)
        list[#list + 1] = { "v", o.rho * s.v + (1 - o.rho) * g * g }
        list[#list + 1] = { "change", sqrt(s.u + o.eps) / sqrt(var "v" + o.eps) * g }
        list[#list + 1] = { "u", o.rho * s.u + (1 - o.rho) * change * change }
        list[#list + 1] = { "w", w - lr * change }
        return list
    end,
}
