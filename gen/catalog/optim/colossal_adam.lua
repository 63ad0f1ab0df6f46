-- fused_adam, cpu_adam, hybrid_adam: Colossal-AI's Adam, one rule under three names. There they differ in
-- where they run and in defects that nothing here has: bias_correction and the gradient's factor always count.
local moments = require "catalog.moments"

local function adam(name)
    optimizer(name) {
        doc = "m, v moving averages of g, g^2; w -= lr (m^ / (sqrt(v^) + eps) + weight_decay w); adamw_mode "
            .. "false: g += weight_decay w instead",
        fields = {
            moments.lr(1e-3), moments.flag("bias_correction", true, "m^, v^ are m, v over 1 - beta^t; else m, v"),
            moments.betas(0.9, 0.999), moments.eps(1e-8), moments.weight_decay(0, "see adamw_mode"),
            moments.flag("adamw_mode", true, "decoupled decay; false: an L2 penalty in g"),
        },
        scope = "element", zero = true, cycled = "betas",
        check = moments.check_betas,
        state = function() return { "m", "v" } end,
        update = function(o, w, g, s, lr, t)
            local beta1, beta2 = o.betas[1], o.betas[2]
            local list = {}
            g = moments.gradient(o, w, g, list, o.adamw_mode)
            if o.adamw_mode then w = moments.decayed(o, w, lr) end
            local root = sqrt(var "v") * (1 / sqrt(moments.seen(beta2, t, o.bias_correction)))
            list[#list + 1] = { "m", moments.average(beta1, s.m, g) }
            list[#list + 1] = { "v", beta2 * s.v + (1 - beta2) * g * g }
            list[#list + 1] = { "w", w - lr * (1 / moments.seen(beta1, t, o.bias_correction)) * var "m"
                / (root + o.eps) }
            return list
        end,
    }
end

for _, name in ipairs { "fused_adam", "cpu_adam", "hybrid_adam" } do adam(name) end
