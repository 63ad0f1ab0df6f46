-- schedule_common: fields and terms that several schedules share. t and total are expressions: updates (or epochs)
-- done, and in all.
local expr = require "base.expr"

local common = {}

--- Interpolates from `from` at p = 0 to `to` at p = 1: "cos" along half a wave, "linear" straight.
function common.between(form, from, to, p)
    if form == "linear" then return from + (to - from) * p end
    return to + (from - to) * 0.5 * (1 + expr.cos(math.pi * p))
end

--- The part of the schedule that is done: t / total, at most 1.
function common.part(t, total) return expr.min(t / total, 1) end

common.warmup = { name = "warmup", type = "num", default = 0, min = 0,
    doc = "length of a linear warm-up, base (t + 1) / warmup, behind which t and total of the formula begin; below 1 "
        .. "a fraction of all" }
common.total = { name = "total", type = "int", min = 1, doc = "its length; default: the run's" }

function common.eta_min() return { name = "eta_min", type = "num", default = 0, min = 0, doc = "the last rate" } end

--- The fields of a schedule that also moves the momentum.
function common.momentum(low, high)
    return { name = "cycle_momentum", type = "bool", default = true,
        doc = "momentum or beta1 falls while the rate rises" },
        { name = "base_momentum", type = "num", default = low, min = 0, below = 1, doc = "the lowest" },
        { name = "max_momentum", type = "num", default = high, min = 0, below = 1, doc = "the highest" }
end

return common
