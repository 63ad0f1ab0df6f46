-- sums: what precision.accum and precision.stochastic go together with. Gradients of 16 bits are written back by
-- nothing but their own sums: whatever else would round them a second time is refused.
local diag = require "base.diag"

local sums = {}

-- What cannot be together with accum = "bf16": { whether it is there, what it is, why }.
local function conflicts(c)
    local f = c.precision
    return {
        { f == "f64" or f == "f16", ("arithmetic %q"):format(f),
            'expected "f32" or "bf16", whose range the sums have' },
        { c.mode.ranks, "parallel", "sums over the ranks are of f32 here" },
        { c.gradient, "gradient", "what it makes of the gradient would be rounded once more" },
        { c.clip and c.clip.value, "clip { value = ... }", "what is cut would be rounded once more; "
            .. "clipping by the norm does not write the gradient back" },
        { c.scaler, "scaler", "the gradient without the scale would be rounded once more, where it is looked at" },
    }
end

--- Refuses what cannot be done together; at: where `precision` is.
function sums.check(c, at)
    if c.stochastic and c.accum ~= "bf16" then
        diag.fail(diag.field(at, "stochastic"), ('precision: stochastic with accum = %q, expected accum = "bf16": '
            .. "it is about how such sums are rounded"):format(c.accum), {})
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
