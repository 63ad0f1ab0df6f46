-- moments: what several optimizers of the catalog have in common: their fields, checks and terms.
local expr = require "base.expr"

local moments = {}

--- The fields that most rules have; `default` is the named implementation's.
function moments.lr(default)
    return { name = "lr", type = "num", required = default == nil or nil, default = default, min = 0,
        doc = "learning rate" }
end

function moments.betas(first, second)
    return { name = "betas", type = "list", default = { first, second },
        doc = "decay of the average of g and of that of g^2" }
end

function moments.eps(default, what)
    return { name = "eps", type = "num", default = default, above = 0, doc = what or "added to sqrt(v^)" }
end

function moments.weight_decay(default, what)
    return { name = "weight_decay", type = "num", default = default, min = 0,
        doc = what or "added to g as weight_decay w" }
end

function moments.momentum(default)
    return { name = "momentum", type = "num", default = default, min = 0, doc = "decay of the buffer" }
end

function moments.flag(name, default, what)
    return { name = name, type = "bool", default = default, doc = what }
end

--- What is wrong with betas; nil: nothing.
function moments.check_betas(o)
    if #o.betas ~= 2 then return "betas takes two numbers" end
    for _, beta in ipairs(o.betas) do
        if not expr.is(beta) and (type(beta) ~= "number" or not (beta >= 0 and beta < 1)) then
            return "each of betas is expected in [0, 1)"
        end
    end
end

--- decay * average + (1 - decay) * x.
function moments.average(decay, average, x) return decay * average + (1 - decay) * x end

--- 1 - beta^t: what a zero-initialised average has seen after t values; 1 where `corrects` is false.
function moments.seen(beta, t, corrects)
    if corrects == false then return expr.lift(1) end
    return 1 - expr.pow(beta, t)
end

--- The gradient that the rule takes: turned round by `maximize`, with weight_decay w in it unless that is
--- decoupled. If it is not g itself, the first of the statements in `list` makes it.
function moments.gradient(o, w, g, list, decoupled)
    local e = g
    if o.maximize then e = -g end
    if not decoupled and o.weight_decay ~= 0 then e = e + o.weight_decay * w end
    if e == g then return g end
    list[#list + 1] = { "d", e }
    return expr.var "d"
end

--- w after decoupled decay; itself for a decay of 0.
function moments.decayed(o, w, lr)
    return o.weight_decay ~= 0 and w * (1 - lr * o.weight_decay) or w
end

--- buf = momentum buf + (1 - dampening) g, where the first value is g alone.
function moments.buffer(o, buf, g, t)
    local fresh = o.dampening == 0 and 1 or expr.where(expr.lt(t, 2), 1, 1 - o.dampening)
    return o.momentum * buf + fresh * g
end

return moments
