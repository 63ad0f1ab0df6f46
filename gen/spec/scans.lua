-- scans: what the host says of data files, asked once for each question, even if a spec is read several times.
local ordered = require "base.ordered"

local scans = {}

local function key_of(name, q)
    local parts = { name }
    for _, field in ipairs(ordered.keys(q)) do
        local value = q[field]
        parts[#parts + 1] = field
        parts[#parts + 1] = type(value) == "table" and table.concat(ordered.collect(value, tostring), "\0")
            or tostring(value)
    end
    return table.concat(parts, "\0")
end

local function copy(value)
    if type(value) ~= "table" then return value end
    local out = {}
    for key, entry in ordered.each(value) do out[key] = copy(entry) end
    return out
end

local known = {}

--- A copy of host[name](request), which the caller may change; or nil, message.
function scans.once(name, request)
    local key = key_of(name, request)
    if not known[key] then
        local facts, message = host[name](request)
        if not facts then return nil, message end
        known[key] = facts
    end
    return copy(known[key])
end

return scans
