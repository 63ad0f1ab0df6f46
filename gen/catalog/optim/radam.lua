-- radam: Adam that divides by sqrt(v) only once enough gradients are known (Liu et al., 2020), with torch's
-- arguments.
local common = require "catalog.optim_common"

optimizer "radam" {
    doc = "m, v as Adam; rho = rho_inf - 2 t beta2^t / (1 - beta2^t), rho_inf = 2 / (1 - beta2) - 1; rho > 5: "
        .. "w -= lr m^ r sqrt(1 - beta2^t) / (sqrt(v) + eps), r^2 = (rho - 4)(rho - 2) rho_inf / ((rho_inf - 4)"
        .. "(rho_inf - 2) rho); before: w -= lr m^",
    fields = {
        common.lr(1e-3, 1e-7, 0.1), common.betas(0.9, 0.999), common.eps(1e-8, "added to sqrt(v)"),
        common.weight_decay(0, "added to g, or decoupled"),
        common.flag("decoupled_weight_decay", false, "w is made smaller instead of g changed"),
        common.flag("maximize", false, "climb instead of descend"),
    },
    scope = "element", zero = true, cycled = "betas",
    check = common.check_betas,
    state = function() return { "m", "v" } end,
    update = function(o, w, g, s, lr, t)
        local beta1, beta2 = o.betas[1], o.betas[2]
        local rho_inf, rho = 2 / (1 - beta2) - 1, var "rho"
        local list = { { "rho", rho_inf - 2 * t * pow(beta2, t) / common.bias_correction(beta2, t) } }
        g = common.gradient(o, w, g, list, o.decoupled_weight_decay)
        if o.decoupled_weight_decay then w = common.decayed(o, w, lr) end
        local square = (rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)
        local rectified = sqrt(max(square, 0) * common.bias_correction(beta2, t))
        list[#list + 1] = { "m", common.average(beta1, s.m, g) }
        list[#list + 1] = { "v", beta2 * s.v + (1 - beta2) * g * g }
        list[#list + 1] = { "w", w - common.step_size(lr, beta1, t) * var "m"
            * where(gt(rho, 5), rectified / (sqrt(var "v") + o.eps), 1) }
        return list
    end,
}
