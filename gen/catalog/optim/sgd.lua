-- sgd and fused_sgd: stochastic gradient descent as torch and as Colossal-AI (after Apex) define it. The first
-- value of each parameter's buffer is its gradient alone.
local common = require "catalog.optim_common"

local function check(o)
    if o.nesterov and (o.momentum == 0 or o.dampening ~= 0) then
        return "nesterov needs momentum > 0 and dampening 0"
    end
end

local function sgd(name, doc, option)
    optimizer(name) {
        doc = doc,
        fields = {
            common.lr(nil, 1e-5, 10), common.momentum(0),
            { name = "dampening", type = "num", default = 0, doc = "new gradients are multiplied by 1 - dampening" },
            common.weight_decay(0), common.flag("nesterov", false, "look-ahead: w -= lr (g + momentum buf)"), option,
        },
        scope = "element", zero = true, cycled = "momentum",
        check = check,
        state = function(o) return o.momentum ~= 0 and { "buf" } or {} end,
        -- w, g and the state s are those of an element; lr and t (from 1) are those of the update
        update = function(o, w, g, s, lr, t)
            local list = {}
            g = common.gradient(o, w, g, list, o.wd_after_momentum)
            local step = g
            if o.momentum ~= 0 then
                list[#list + 1] = { "buf", common.with_momentum(o, common.buffer(o, s.buf, g, t), s.buf) }
                step = common.with_momentum(o, o.nesterov and g + o.momentum * var "buf" or var "buf", g)
            end
            if o.wd_after_momentum and o.weight_decay ~= 0 then step = step + o.weight_decay * w end
            list[#list + 1] = { "w", w - lr * step }
            return list
        end,
    }
end

sgd("sgd", "g += weight_decay w; buf = momentum buf + (1 - dampening) g (first: buf = g); w -= lr buf",
    common.flag("maximize", false, "climb instead of descend"))
sgd("fused_sgd", "g += weight_decay w; buf = momentum buf + (1 - dampening) g (first: buf = g); w -= lr buf; "
    .. "wd_after_momentum: w -= lr (buf + weight_decay w)",
    common.flag("wd_after_momentum", false, "add weight_decay w to what leaves the buffer"))
