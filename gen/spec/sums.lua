-- sums: checks precision.accum and precision.stochastic against other words. With accum = "bf16" every write to the
-- gradient rounds it to 16 bits; words that would write it again after the sum are refused. With accum = "kahan" a sum
-- is kept by the process that adds to it; modes of parallel that add on all processes are refused.
local diag = require "base.diag"

local sums = {}

local KAHAN = { expected = 'accum = "f32"' }

-- The words that exclude accum = "kahan": { whether the spec has it, its name, the reason }.
function KAHAN.conflicts(c)
    return { { c.mode.sharded.gradients, ("parallel %q"):format(c.parallel),
        "sums of each micro-step are added to the parts of all ranks" } }
end

local BF16 = { expected = 'accum = "f32" or "kahan"' }

-- The same for accum = "bf16".
function BF16.conflicts(c)
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

local KINDS = { kahan = KAHAN, bf16 = BF16 }

--- Refuses words that exclude each other; at: the place of `precision`.
function sums.check(c, at)
    if c.stochastic and c.accum ~= "bf16" then
        diag.fail(diag.field(at, "stochastic"), ('precision: stochastic with accum = %q, expected accum = "bf16": '
            .. "it changes how such sums are rounded"):format(c.accum), {})
    end
    local kind = KINDS[c.accum]
    for _, conflict in ipairs(kind and kind.conflicts(c) or {}) do
        if conflict[1] then
            diag.fail(diag.field(at, "accum"), ("precision: accum = %q together with %s is not possible: %s; "
                .. "expected %s with it"):format(c.accum, conflict[2], conflict[3], kind.expected), {})
        end
    end
end

return sums
