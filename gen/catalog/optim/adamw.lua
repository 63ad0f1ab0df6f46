-- adam and adamw: Adam with an L2 penalty (Kingma and Ba, 2015) or with decoupled weight decay (Loshchilov
-- and Hutter, 2019), with torch's arguments.
local common = require "catalog.optim_common"

local function adam(name, doc, decay, decoupled)
    optimizer(name) {
        doc = doc,
        fields = {
            common.lr(1e-3, 1e-7, 0.1), common.betas(0.9, 0.999), common.eps(1e-8),
            common.weight_decay(decay, decoupled and "decoupled decay" or nil),
            common.flag("amsgrad", false, "divide by the largest v so far"),
            common.flag("maximize", false, "climb instead of descend"),
        },
        scope = "element", zero = true, cycled = "betas",
        check = common.check_betas,
        state = function(o) return o.amsgrad and { "m", "v", "v_max" } or { "m", "v" } end,
        update = function(o, w, g, s, lr, t)
            local beta1, beta2 = o.betas[1], o.betas[2]
            local list = {}
            g = common.gradient(o, w, g, list, decoupled)
            if decoupled then w = common.decayed(o, w, lr) end
            list[#list + 1] = { "m", common.average(beta1, s.m, g) }
            list[#list + 1] = { "v", beta2 * s.v + (1 - beta2) * g * g }
            if o.amsgrad then list[#list + 1] = { "v_max", max(s.v_max, var "v") } end
            local root = sqrt(o.amsgrad and var "v_max" or var "v") * common.v_scale(beta2, t)
            list[#list + 1] = { "w", w - common.step_size(lr, beta1, t) * var "m" / (root + o.eps) }
            return list
        end,
    }
end

adam("adam", "g += weight_decay w; m, v moving averages of g, g^2; w -= lr m^ / (sqrt(v^) + eps)", 0, false)
adam("adamw", "m, v moving averages of g, g^2; w -= lr (m^ / (sqrt(v^) + eps) + weight_decay w)", 0.01, true)
