-- log_lines: the lines of a run's log and the events in them, for all that read one.
local diag = require "base.diag"

local log_lines = {}

local MOST = 1 << 30            -- bytes of a log

local NEEDS_CYCLE = { update = true, eval = true, checkpoint = true }

--- Whether a value of the log is the number of a cycle.
function log_lines.is_cycle(value) return math.type(value) == "integer" and value >= 0 end

--- The text of the log at `path`; one that cannot be read, or has no line, is refused.
function log_lines.read(path)
    if not host.exists(path) then
        diag.fail(path, "there is no such log, expected the events of a run", { notes = {
            "a run that was started with --log has its log there" } })
    end
    local text, message = host.read(path, MOST)
    if not text then diag.fail(path, message, { kind = "environment" }) end
    if not text:find "%S" then diag.fail(path, "the log is empty, expected the events of a run", {}) end
    return text
end

--- Calls see(number, line, whole) for each line of a text that is not empty. whole: it has its end, which a run that
--- goes on or was killed may not have written.
function log_lines.each(text, see)
    local from, number = 1, 0
    while from <= #text do
        local to = text:find("\n", from, true)
        local line = text:sub(from, (to or #text + 1) - 1)
        number = number + 1
        if line ~= "" then see(number, line, to ~= nil) end
        from = (to or #text) + 1
    end
end

--- The event in a line, or nil and the reason.
function log_lines.event(line)
    local event = host.parse_json(line)
    if type(event) ~= "table" or type(event.event) ~= "string" then return nil, "is no event of a log" end
    if NEEDS_CYCLE[event.event] and not log_lines.is_cycle(event.cycle) then return nil, "has no cycle" end
    return event
end

return log_lines
