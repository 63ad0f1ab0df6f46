-- log: reads the updates and evaluations of a run's log.jsonl. Each number keeps the digits that the program wrote.
local diag = require "base.diag"
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
    local path, list, number = folder .. "/log.jsonl", {}, 0
    local file, message = io.open(path, "rb")
    if not file then diag.fail(path, (message:gsub("^.*: ", "")), {}) end
    for line in file:lines "L" do
        number = number + 1
        local whole = line:sub(-1) == "\n"
        local event = whole and line:sub(1, 1) == "{" and host.parse_json(line)
        if whole and (type(event) ~= "table" or type(event.event) ~= "string") then
            diag.fail(("%s:%d"):format(path, number), "no event, expected a JSON object with the field event", {})
        end
        if whole and SHOWN[event.event] then
            if math.type(event.cycle) ~= "integer" then
                diag.fail(("%s:%d"):format(path, number), ("'%s' without a cycle, expected a whole number"):format(
                    event.event), {})
            end
            list[#list + 1] = fields_of(line)
        end
    end
    file:close()
    if #list == 0 then
        diag.fail(path, "has no updates and no evaluations yet, expected one or more", {})
    end
    return list
end

return log
