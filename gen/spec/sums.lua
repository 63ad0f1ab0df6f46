-- sums: checks precision.accum and precision.stochastic against other words. With accum = "bf16" every write to the
-- gradient rounds it to 16 bits; words that would write it again after the sum are refused. accum = "kahan" keeps what
-- the sums of a rank round off, so it needs a rank's own sums over the whole cycle.
local diag = require "base.diag"

local sums = {}

-- The words that exclude accum = "bf16": { whether the spec has it, its name, the reason }.
local function conflicts(c)
    local f = c.precision
    return {
        { f == "f64" or f == "f16", ("arithmetic %q"):format(f),
            'expected "f32" or "bf16", whose range the sums have' },
        { c.mode.ranks, "parallel", "sums over the ranks are of f32 here" },
        { c.gradient, "gradient", "its result would be rounded once more" },
        { c.clip and c.clip.value, "clip { value = ... }", "the clipped gradient would be rounded once more; "
            .. "clipping by the norm does not write the gradient back" },
        { c.scaler, "scaler", "the gradient divided by the scale would be rounded once more" },
    }
end

--- Refuses words that exclude each other; at: the place of `precision`.
function sums.check(c, at)
    if c.stochastic and c.accum ~= "bf16" then
        diag.fail(diag.field(at, "stochastic"), ('precision: stochastic with accum = %q, expected accum = "bf16": '
            .. "it changes how such sums are rounded"):format(c.accum), {})
    end
    if c.accum == "kahan" and c.mode.sharded and c.mode.sharded.gradients then
        diag.fail(diag.field(at, "accum"), ('precision: accum = "kahan" together with parallel %q is not possible: each '
            .. 'micro-step ends with a sum over the ranks; expected accum = "f32", or a mode that divides no gradients')
            :format(c.mode.name), {})
    end
    if c.accum ~= "bf16" then return end
    for _, conflict in ipairs(conflicts(c)) do
        if conflict[1] then
            diag.fail(diag.field(at, "accum"), ('precision: accum = "bf16" together with %s is not possible: %s; '
                .. 'expected accum = "f32" or "kahan" with it'):format(conflict[2], conflict[3]), {})
        end
    end
end

return sums
