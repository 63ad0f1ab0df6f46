-- log: the updates and evaluations of a run's log.jsonl. Each number keeps the digits that the program wrote.
local diag = require "base.diag"
local log_lines = require "report.log_lines"
local ordered = require "base.ordered"

local log = {}

local SHOWN = { update = true, eval = true }

-- The fields of an event in their order: name -> text of the value, without the quotes of a string.
local function fields_of(line)
    local fields = ordered.map()
    for name, _, value in line:gmatch '"([^"]+)":%s*("?)([^",}]*)%2' do fields:set(name, value) end
    return fields
end

--- The updates and evaluations in the log of the run in `folder`, in order, as ordered maps from field to text. The
--- last line counts if it is whole: the run may be going on, or have been killed.
function log.events(folder)
    local path, list = folder .. "/log.jsonl", {}
    log_lines.each(log_lines.read(path), function(number, line, whole)
        local event, reason = log_lines.event(line)
        if whole and not event then
            diag.fail(("%s:%d"):format(path, number), ("the line %s, expected a JSON object with the field event, and "
                .. "for an update or evaluation its cycle"):format(reason), {})
        end
        if whole and SHOWN[event.event] then list[#list + 1] = fields_of(line) end
    end)
    if #list == 0 then diag.fail(path, "has no updates and no evaluations yet, expected one or more", {}) end
    return list
end

return log
