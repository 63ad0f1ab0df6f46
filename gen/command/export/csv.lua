-- csv: the updates and evaluations of a run as a table: a line for each, a column for each field that one of them has.
local ordered = require "base.ordered"

--- The text of the table; events: the result of log.events. A field that an event does not have is empty.
return function(events)
    local columns, rows = ordered.map(), {}
    for _, event in ipairs(events) do
        for name in event:each() do columns:set(name, true) end
    end
    rows[1] = table.concat(columns.keys, ",")
    for i, event in ipairs(events) do
        rows[i + 1] = table.concat(ordered.collect(columns.keys, function(name) return event:get(name) or "" end), ",")
    end
    return table.concat(rows, "\n") .. "\n"
end
