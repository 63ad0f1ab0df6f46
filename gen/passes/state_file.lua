-- state_file: which part of the optimizer's state lies in a file (parallel.nvme). Of each state that all trained
-- parameters have, memory has the first elements and the file the last; an update sweeps over the elements, and those
-- of the file pass through windows of memory, one segment after another (runtime/files/state_file.h).
--
--   elements of m      0 ............... held ............................ elements
--   memory             | as without      | window | window | window |
--   file                                 | segment | segment | segment | segment |
local diag = require "base.diag"
local ordered = require "base.ordered"
local update_rule = require "passes.update_rule"

local state_file = {}

-- Windows of memory, and bytes of one of all states together: at most 4 MiB each.
local WINDOWS, WINDOW_BYTES = 3, 4 << 20

-- Elements that every cut of the runtime is a multiple of: GA_CUT.
local CUT = 16

--- The state_file of a graph: { folder, fraction, arrays = names of the states in it, window = elements of each that
--- pass through memory at once }; nil: all state lies in memory.
function state_file.of(g, config)
    if not config.nvme then return nil end
    update_rule.refuse_whole(g, config.nvme.at, "nvme is given")
    local arrays = ordered.collect(g.state_names, function(name) return g.states:get(name).dense and name or nil end)
    if #arrays == 0 then
        diag.fail(config.nvme.at, "parallel: nvme is given, and no state of the optimizer belongs to all trained "
            .. "parameters, so nothing would lie in the file: expected no nvme", {})
    end
    local size = g.real == "f64" and 8 or 4
    return { folder = config.nvme.folder, fraction = config.nvme.fraction, arrays = arrays,
        window = WINDOW_BYTES // (#arrays * size) // CUT * CUT }
end

--- Of so many elements of a state: how many lie in memory for good.
function state_file.held(file, elements)
    return math.floor(elements * (1 - file.fraction)) // CUT * CUT
end

--- How many elements of memory such a state needs.
function state_file.in_memory(file, elements)
    local held = state_file.held(file, elements)
    return held + WINDOWS * math.min(file.window, (elements - held + CUT - 1) // CUT * CUT)
end

return state_file
