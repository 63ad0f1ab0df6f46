-- nadam: Adam with Nesterov's momentum, whose decay rises over the updates (Dozat, 2016), with torch's arguments.
local common = require "catalog.optim_common"

optimizer "nadam" {
    doc = "m, v as Adam; mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2); w -= lr (mu_(t+1) m / (1 - prod mu to t+1) "
        .. "+ (1 - mu_t) g / (1 - prod mu to t)) / (sqrt(v^) + eps)",
    fields = {
        common.lr(2e-3, 1e-7, 0.1), common.betas(0.9, 0.999), common.eps(1e-8),
        common.weight_decay(0, "added to g, or decoupled"),
        { name = "momentum_decay", type = "num", default = 4e-3, min = 0, doc = "how soon mu approaches beta1" },
        common.flag("decoupled_weight_decay", false, "w is made smaller instead of g changed"),
        common.flag("maximize", false, "climb instead of descend"),
    },
    scope = "element", zero = true, cycled = "betas",
    check = common.check_betas,
    state = function() return { "m", "v" } end,
    -- the product of mu over all updates so far, initially 1
    scalars = function() return { { "mu_product", 1 } } end,
    update = function(o, w, g, s, lr, t)
        local beta1, beta2 = o.betas[1], o.betas[2]
        local function mu(at) return beta1 * (1 - 0.5 * pow(0.96, at * o.momentum_decay)) end
        local now, following, product = var "mu", var "mu_next", var "mu_product"
        local list = { { "mu", mu(t) }, { "mu_next", mu(t + 1) }, { "mu_product", s.mu_product * now } }
        g = common.gradient(o, w, g, list, o.decoupled_weight_decay)
        if o.decoupled_weight_decay then w = common.decayed(o, w, lr) end
        local root = sqrt(var "v" * (1 / common.bias_correction(beta2, t))) + o.eps
        local step = lr * (1 - now) / (1 - product) * g + lr * following / (1 - product * following) * var "m"
        list[#list + 1] = { "m", common.average(beta1, s.m, g) }
        list[#list + 1] = { "v", beta2 * s.v + (1 - beta2) * g * g }
        list[#list + 1] = { "w", w - step / root }
        return list
    end,
}
