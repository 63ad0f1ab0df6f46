-- fused_adam, cpu_adam, hybrid_adam: Colossal-AI's Adam, one rule under three names. Theirs differ in the device
-- that they run on and in defects that are not reproduced: some ignore bias_correction or the gradient's scale.
local common = require "catalog.optim_common"

local function adam(name)
    optimizer(name) {
        doc = "m, v moving averages of g, g^2; w -= lr (m^ / (sqrt(v^) + eps) + weight_decay w); adamw_mode "
            .. "false: g += weight_decay w instead",
        fields = {
            common.lr(1e-3, 1e-7, 0.1),
            common.flag("bias_correction", true, "m^, v^ are m, v over 1 - beta^t; else m, v"),
            common.betas(0.9, 0.999), common.eps(1e-8), common.weight_decay(0, "see adamw_mode"),
            common.flag("adamw_mode", true, "decoupled decay; false: an L2 penalty in g"),
        },
        scope = "element", zero = true, cycled = "betas",
        check = common.check_betas,
        state = function() return { "m", "v" } end,
        update = function(o, w, g, s, lr, t)
            local beta1, beta2 = o.betas[1], o.betas[2]
            local list = {}
            g = common.gradient(o, w, g, list, o.adamw_mode)
            if o.adamw_mode then w = common.decayed(o, w, lr) end
            local root = sqrt(var "v") * common.v_scale(beta2, t, o.bias_correction)
            list[#list + 1] = { "m", common.average(beta1, s.m, g) }
            list[#list + 1] = { "v", beta2 * s.v + (1 - beta2) * g * g }
            list[#list + 1] = { "w", w - common.step_size(lr, beta1, t, o.bias_correction) * var "m"
                / (root + o.eps) }
            return list
        end,
    }
end

for _, name in ipairs { "fused_adam", "cpu_adam", "hybrid_adam" } do adam(name) end
