-- adagrad: Duchi, Hazan and Singer, 2011, with torch's arguments.
local common = require "catalog.optim_common"

optimizer "adagrad" {
    doc = "g += weight_decay w; sum += g^2; w -= lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps)",
    fields = {
        common.lr(1e-2, 1e-5, 10),
        { name = "lr_decay", type = "num", default = 0, min = 0, doc = "lowers the rate with each update" },
        common.weight_decay(0),
        { name = "initial_accumulator_value", type = "num", default = 0, min = 0,
            doc = "what sum is before the first update" },
        common.eps(1e-10, "added to sqrt(sum)"),
        common.flag("maximize", false, "climb instead of descend"),
    },
    scope = "element",
    zero = function(o) return o.initial_accumulator_value == 0 end,
    state = function() return { "sum" } end,
    update = function(o, w, g, s, lr, t)
        local list = {}
        g = common.gradient(o, w, g, list)
        local before, start = s.sum, o.initial_accumulator_value
        if start ~= 0 then before = where(lt(t, 2), start, s.sum) end
        local rate = o.lr_decay ~= 0 and lr / (1 + (t - 1) * o.lr_decay) or lr
        list[#list + 1] = { "sum", before + g * g }
        list[#list + 1] = { "w", w - rate * g / (sqrt(var "sum") + o.eps) }
        return list
    end,
}
