-- optim_common: fields, checks and terms that several optimizers share.
-- `o` are the fields of an optimizer; w, g, averages and t (the number of the update, from 1) are expressions.
local expr = require "base.expr"

local common = {}

--- Fields of optimizers; `default` is the value that the original implementation has.

--- The learning rate; `least` and `greatest` bound what practice has, widely: a run whose highest rate is outside gets
--- a warning (unusual_rate of spec/warnings.lua), without them none does.
function common.lr(default, least, greatest)
    return { name = "lr", type = "num", required = default == nil or nil, default = default, min = 0,
        usual = least and { least, greatest },
        doc = least and ("learning rate, usually %g to %g"):format(least, greatest) or "learning rate" }
end

function common.betas(first, second)
    return { name = "betas", type = "list", default = { first, second },
        doc = "decay of the average of g and of that of g^2" }
end

function common.eps(default, what)
    return { name = "eps", type = "num", default = default, above = 0, doc = what or "added to sqrt(v^)" }
end

function common.weight_decay(default, what)
    return { name = "weight_decay", type = "num", default = default, min = 0,
        doc = what or "added to g as weight_decay w" }
end

function common.momentum(default)
    return { name = "momentum", type = "num", default = default, min = 0, doc = "decay of the buffer" }
end

function common.flag(name, default, what)
    return { name = name, type = "bool", default = default, doc = what }
end

--- The complaint about o.betas, or nil if both are in [0, 1).
function common.check_betas(o)
    if #o.betas ~= 2 then return "betas takes two numbers" end
    for _, beta in ipairs(o.betas) do
        if not expr.is(beta) and (type(beta) ~= "number" or not (beta >= 0 and beta < 1)) then
            return "each of betas is expected in [0, 1)"
        end
    end
end

--- The moving average after x: decay * average + (1 - decay) * x.
function common.average(decay, average, x) return decay * average + (1 - decay) * x end

--- 1 - beta^t, the sum of the weights in a moving average of t values that starts at 0: dividing by it corrects
--- the bias. 1 if `enabled` is false.
function common.bias_correction(beta, t, enabled)
    if enabled == false then return expr.lift(1) end
    return 1 - expr.pow(beta, t)
end

--- lr / (1 - beta^t), the rate of an average m that starts at 0.
function common.step_size(lr, beta, t, enabled)
    return expr.named("step_size", lr * (1 / common.bias_correction(beta, t, enabled)))
end

--- 1 / sqrt(1 - beta^t), by which sqrt(v) of an average v that starts at 0 is multiplied.
function common.v_scale(beta, t, enabled)
    return expr.named("v_scale", 1 / expr.sqrt(common.bias_correction(beta, t, enabled)))
end

--- The gradient that the rule uses: negated by `maximize`, plus weight_decay w unless the decay is decoupled.
--- If that differs from g, a statement that computes it as `d` is appended to `list`.
function common.gradient(o, w, g, list, decoupled)
    local e = g
    if o.maximize then e = -g end
    if not decoupled and o.weight_decay ~= 0 then e = e + o.weight_decay * w end
    if e == g then return g end
    list[#list + 1] = { "d", e }
    return expr.var "d"
end

--- w after decoupled weight decay.
function common.decayed(o, w, lr)
    return o.weight_decay ~= 0 and w * expr.named("decay", 1 - lr * o.weight_decay) or w
end

--- `moved`, or `still` where a schedule has moved the momentum to 0, as torch has it: no buffer is kept or read then.
function common.with_momentum(o, moved, still)
    return o.momentum_vanishes and expr.where(expr.gt(o.momentum, 0), moved, still) or moved
end

--- The momentum buffer after g: momentum buf + (1 - dampening) g; after the first update g alone.
function common.buffer(o, buf, g, t)
    local fresh = o.dampening == 0 and 1 or expr.where(expr.lt(t, 2), 1, 1 - o.dampening)
    return o.momentum * buf + fresh * g
end

return common
