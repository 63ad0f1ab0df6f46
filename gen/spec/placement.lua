-- placement: the fields of parallel that say where chunks lie between their uses.
--
--   placement = "host"                                     values, gradient and state of a rank's cuts in host memory
--   placement = "auto", gpu_margin_mem_ratio = 0.2         as much of them on the device as memory.budget has room for
local diag = require "base.diag"
local ordered = require "base.ordered"

local placement = {}

-- The policy of each value of the field; the device is nil: nothing is placed elsewhere.
local POLICIES = { host = "host", cpu = "host", auto = "auto", const = "const" }

-- 'parallel "a" or "b"': the modes that divide parameters.
local function dividing(catalog)
    return "parallel " .. table.concat(ordered.collect(catalog.modes.keys, function(name)
        return catalog.modes:get(name).sharded.parameters and ("%q"):format(name) or nil
    end), " or ")
end

-- Words that a spec may not have beside it: { whether it has, the complaint }.
local function conflicts(c, parallel, given)
    return {
        { not c.catalog.modes:get(c.parallel).sharded.parameters, ("%q goes by chunks of parameters, and with %q there "
            .. "are none: expected %s, or no placement"):format(given, c.parallel, dividing(c.catalog)) },
        { parallel.enable_distributed_storage == false, ("%q, and with enable_distributed_storage = false each process "
            .. "has all parameters on its device: expected no placement"):format(given) },
        { parallel.nvme ~= nil, ("%q and nvme are given, and both say where the optimizer's state lies: expected one "
            .. "of them"):format(given) },
    }
end

--- Sets c.placement = { policy = "host" | "auto" | "const", given, ratio, at }; nil: all lies on the device. parallel:
--- the fields of that word, at: its place; ranks: the option --ranks, or nil.
function placement.read(c, parallel, at, ranks)
    local given, ratio = parallel.placement, parallel.gpu_margin_mem_ratio
    local policy = POLICIES[given]
    local own = diag.field(at, "placement")
    for _, conflict in ipairs(policy and conflicts(c, parallel, given) or {}) do
        if conflict[1] then diag.fail(own, "parallel: placement is " .. conflict[2], {}) end
    end
    if ratio and policy ~= "auto" then
        diag.warn(diag.field(at, "gpu_margin_mem_ratio"), 'parallel: gpu_margin_mem_ratio is about placement = "auto": '
            .. "it changes nothing here")
    end
    if policy == "auto" and not c.ranks_required and not ranks then
        diag.fail(own, 'parallel: placement is "auto", and what a device has of each chunk depends on the number of '
            .. "processes: expected ranks = n, also 1, or the option --ranks n", {})
    end
    if policy == "auto" then c.ranks_required = c.ranks end
    if policy then
        c.placement = { policy = policy, given = given, ratio = policy == "auto" and ratio or 0, at = own }
    end
end

--- Refuses "auto" without a budget.
function placement.check_budget(c)
    if c.placement and c.placement.policy == "auto" and not c.budget then
        diag.fail(c.placement.at, 'parallel: placement is "auto", expected memory { budget = "20GiB" } beside it: '
            .. "gagen does not ask the machine", {})
    end
end

return placement
