-- nvme: the field of parallel that puts a part of the optimizer's state into a file.
--
--   nvme = "/scratch"     nvme = { "/scratch", fraction = 0.5 }
local diag = require "base.diag"
local ordered = require "base.ordered"

local nvme = {}

local EXPECTED = "expected a folder or { folder, fraction = a number above 0 and up to 1 }"

-- Refuses what is no such table.
local function check(given, at)
    for key in ordered.each(given) do
        if key ~= 1 and key ~= "fraction" then
            diag.fail(at, ("parallel: nvme has the key '%s': %s"):format(tostring(key), EXPECTED), {})
        end
    end
    local fraction = given.fraction
    if type(fraction) ~= "number" or not (fraction > 0 and fraction <= 1) then
        diag.fail(at, ("parallel: nvme has the fraction %s: %s"):format(tostring(fraction), EXPECTED), {})
    end
    if type(given[1]) ~= "string" or given[1] == "" then
        diag.fail(at, "parallel: nvme has no folder: " .. EXPECTED, {})
    end
end

--- Sets c.nvme = { folder, fraction, at }; nil: all state lies in memory. parallel: the fields of that word.
function nvme.read(c, parallel, at)
    local given = parallel.nvme
    if given == nil then return end
    at = diag.field(at, "nvme")
    if type(given) == "string" then given = { given } end
    given = ordered.copy({ fraction = 1 }, given)
    check(given, at)
    c.nvme = { folder = given[1], fraction = given.fraction, at = at }
end

return nvme
