-- state_file: which part of the optimizer's state lies in a file (parallel.nvme). Of each state that all trained
-- parameters have, memory has the first elements and the file the last; an update sweeps over the elements, and those
-- of the file pass through windows of memory, one segment after another (runtime/files/state_file.h). Of a device, its
-- memory has the first elements and one window.
--
--   elements of m      0 ............... held ............................ elements
--   memory             | as without      | window | window | window |
--   file                                 | segment | segment | segment | segment |
local diag = require "base.diag"
local ordered = require "base.ordered"
local update_rule = require "passes.update_rule"

local state_file = {}

--- Windows of the host's memory: GA_STATE_WINDOWS.
state_file.WINDOWS = 3

-- Bytes of a window of all states together.
local WINDOW_BYTES = 4 << 20

-- Elements that every cut of the runtime is a multiple of: GA_CUT.
local CUT = 16

-- Whether an update of a group reads and writes each element of its states once: all but rules whose sums over a tensor
-- need the states, as lamb's, and rules of matrices. Their sums begin at a tensor and go over its tiles, whereas
-- segments begin anywhere, and the file would be read and written twice per update.
local function sweeps_once(g, config, group)
    if group.rule.scope == "matrix" or group.rule.factors then return false end
    local before = update_rule.of(g, config, group).before
    if not before then return true end
    local reads, writes = update_rule.uses(before.statements, ordered.collect(before.sums, function(s) return s[2] end))
    for _, name in ipairs(g.state_names) do
        if reads[name] or writes[name] then return false end
    end
    return true
end

local function refuse_scope(g, config)
    for _, group in g.groups:each() do
        if not sweeps_once(g, config, group) then
            diag.fail(config.nvme.at, ("parallel: nvme is given, and the rule '%s' goes over the state of whole "
                .. "tensors before it updates an element: expected an optimizer that needs the state of an element "
                .. "once, such as adamw"):format(group.rule.name), {})
        end
    end
end

--- The state_file of a graph: { folder, fraction, arrays = names of the states in it, window = elements of each that
--- pass through memory at once }; nil: all state lies in memory.
function state_file.of(g, config)
    if not config.nvme then return nil end
    refuse_scope(g, config)
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

--- How many elements a window of such a state has.
function state_file.window(file, elements)
    local filed = elements - state_file.held(file, elements)
    return math.min(file.window, (filed + CUT - 1) // CUT * CUT)
end

return state_file
