-- nadam: Adam with Nesterov's momentum and its rising schedule (Dozat, 2016), with torch's arguments.
local moments = require "catalog.moments"

optimizer "nadam" {
    doc = "m, v as Adam; mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2); w -= lr (mu_(t+1) m / (1 - prod mu to t+1) "
        .. "+ (1 - mu_t) g / (1 - prod mu to t)) / (sqrt(v^) + eps)",
    fields = {
        moments.lr(2e-3), moments.betas(0.9, 0.999), moments.eps(1e-8),
        moments.weight_decay(0, "added to g, or decoupled"),
        { name = "momentum_decay", type = "num", default = 4e-3, min = 0, doc = "how soon mu comes to beta1" },
        moments.flag("decoupled_weight_decay", false, "w is made smaller instead of g changed"),
        moments.flag("maximize", false, "climb instead of descend"),
    },
    scope = "element", zero = true, cycled = "betas",
    check = moments.check_betas,
    state = function() return { "m", "v" } end,
    -- the product of all mu so far
    scalars = function() return { { "mu_product", 1 } } end,
    update = function(o, w, g, s, lr, t)
        local beta1, beta2 = o.betas[1], o.betas[2]
        local function mu(at) return beta1 * (1 - 0.5 * pow(0.96, at * o.momentum_decay)) end
        local now, following, product = var "mu", var "mu_next", var "mu_product"
        local list = { { "mu", mu(t) }, { "mu_next", mu(t + 1) }, { "mu_product", s.mu_product * now } }
        g = moments.gradient(o, w, g, list, o.decoupled_weight_decay)
        if o.decoupled_weight_decay then w = moments.decayed(o, w, lr) end
        local root = sqrt(var "v" * (1 / moments.seen(beta2, t))) + o.eps
        local step = lr * (1 - now) / (1 - product) * g + lr * following / (1 - product * following) * var "m"
        list[#list + 1] = { "m", moments.average(beta1, s.m, g) }
        list[#list + 1] = { "v", beta2 * s.v + (1 - beta2) * g * g }
        list[#list + 1] = { "w", w - step / root }
        return list
    end,
}
