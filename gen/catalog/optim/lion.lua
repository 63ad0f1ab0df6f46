-- lion: steps by the sign of an interpolated momentum (Chen et al., 2023).
local common = require "catalog.optim_common"

optimizer "lion" {
    doc = "u = sign(beta1 m + (1 - beta1) g); w -= lr (u + weight_decay w); m = beta2 m + (1 - beta2) g",
    fields = {
        common.lr(1e-4, 1e-8, 1e-2),
        { name = "betas", type = "list", default = { 0.9, 0.99 }, doc = "decay of m in u, and of m" },
        common.weight_decay(0, "decoupled decay"),
    },
    scope = "element", zero = true, cycled = "betas",
    check = common.check_betas,
    state = function() return { "m" } end,
    update = function(o, w, g, s, lr)
        local u = var "u"
        local sign = where(gt(u, 0), 1, where(lt(u, 0), -1, u))        -- NaN stays NaN
        return {
            { "u", common.average(o.betas[1], s.m, g) },
            { "w", common.decayed(o, w, lr) - lr * sign },
            { "m", common.average(o.betas[2], s.m, g) },
        }
    end,
}
