-- adamw: Adam with decoupled weight decay (Loshchilov and Hutter, 2019), torch's arguments.

optimizer "adamw" {
    doc = "m, v moving averages of g, g^2; w -= lr (m^ / (sqrt(v^) + eps) + weight_decay w)",
    fields = {
        { name = "lr", type = "num", default = 1e-3, min = 0, doc = "learning rate" },
        { name = "betas", type = "list", default = { 0.9, 0.999 }, doc = "decay of m and v" },
        { name = "eps", type = "num", default = 1e-8, above = 0, doc = "added to sqrt(v^)" },
        { name = "weight_decay", type = "num", default = 0.01, min = 0, doc = "decoupled decay" },
    },
    scope = "element",
    check = function(o)
        if #o.betas ~= 2 then return "betas takes two numbers" end
        for _, beta in ipairs(o.betas) do
            if type(beta) ~= "number" or not (beta >= 0 and beta < 1) then
                return "each of betas is expected in [0, 1)"
            end
        end
    end,
    state = function() return { "m", "v" } end,
    update = function(o, w, g, s, lr, t)
        local beta1, beta2 = o.betas[1], o.betas[2]
        local m = beta1 * s.m + (1 - beta1) * g
        local v = beta2 * s.v + (1 - beta2) * g * g
        local correct_m, correct_v = 1 / (1 - pow(beta1, t)), 1 / sqrt(1 - pow(beta2, t))
        local root = sqrt(var "v") * correct_v + o.eps
        if o.weight_decay ~= 0 then w = w * (1 - lr * o.weight_decay) end
        return { { "m", m }, { "v", v }, { "w", w - lr * correct_m * var "m" / root } }
    end,
}
