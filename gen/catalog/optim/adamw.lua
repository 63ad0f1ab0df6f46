-- adam and adamw: Adam with an L2 penalty (Kingma and Ba, 2015) or with decoupled weight decay (Loshchilov
-- and Hutter, 2019), with torch's arguments.
local moments = require "catalog.moments"

local function adam(name, doc, decay, decoupled)
    optimizer(name) {
        doc = doc,
        fields = {
            moments.lr(1e-3), moments.betas(0.9, 0.999), moments.eps(1e-8),
            moments.weight_decay(decay, decoupled and "decoupled decay" or nil),
            moments.flag("amsgrad", false, "divide by the largest v so far"),
            moments.flag("maximize", false, "climb instead of descend"),
        },
        scope = "element", zero = true, cycled = "betas",
        check = moments.check_betas,
        state = function(o) return o.amsgrad and { "m", "v", "v_max" } or { "m", "v" } end,
        update = function(o, w, g, s, lr, t)
            local beta1, beta2 = o.betas[1], o.betas[2]
            local list = {}
            g = moments.gradient(o, w, g, list, decoupled)
            if decoupled then w = moments.decayed(o, w, lr) end
            list[#list + 1] = { "m", moments.average(beta1, s.m, g) }
            list[#list + 1] = { "v", beta2 * s.v + (1 - beta2) * g * g }
            if o.amsgrad then list[#list + 1] = { "v_max", max(s.v_max, var "v") } end
            local root = sqrt(o.amsgrad and var "v_max" or var "v") * (1 / sqrt(moments.seen(beta2, t)))
            list[#list + 1] = { "w", w - lr * (1 / moments.seen(beta1, t)) * var "m" / (root + o.eps) }
            return list
        end,
    }
end

adam("adam", "g += weight_decay w; m, v moving averages of g, g^2; w -= lr m^ / (sqrt(v^) + eps)", 0, false)
adam("adamw", "m, v moving averages of g, g^2; w -= lr (m^ / (sqrt(v^) + eps) + weight_decay w)", 0.01, true)
