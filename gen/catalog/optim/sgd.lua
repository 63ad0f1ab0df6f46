-- sgd: stochastic gradient descent as torch.optim.SGD defines it.

optimizer "sgd" {
    doc = "g += weight_decay w; buf = momentum buf + (1 - dampening) g (first: buf = g); w -= lr buf",
    fields = {
        { name = "lr", type = "num", required = true, min = 0, doc = "learning rate" },
        { name = "momentum", type = "num", default = 0, min = 0, doc = "decay of the buffer" },
        { name = "dampening", type = "num", default = 0, doc = "damping of new gradients" },
        { name = "weight_decay", type = "num", default = 0, min = 0, doc = "L2 penalty" },
        { name = "nesterov", type = "bool", default = false, doc = "look-ahead momentum" },
    },
    scope = "element",
    check = function(o)
        if o.nesterov and (o.momentum == 0 or o.dampening ~= 0) then
            return "nesterov needs momentum > 0 and dampening 0"
        end
    end,
    state = function(o) return o.momentum ~= 0 and { "buf" } or {} end,
    -- w, g and the state are element variables; lr and t (1-based) are scalars of the update.
    update = function(o, w, g, s, lr, t)
        if o.weight_decay ~= 0 then g = g + o.weight_decay * w end
        if o.momentum == 0 then return { { "w", w - lr * g } } end
        local fresh = o.dampening == 0 and 1 or where(lt(t, 2), 1, 1 - o.dampening)
        local buf = o.momentum * s.buf + fresh * g
        local step = o.nesterov and g + o.momentum * var "buf" or var "buf"
        return { { "buf", buf }, { "w", w - lr * step } }
    end,
}
