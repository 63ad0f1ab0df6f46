-- glob: name patterns of a spec. `*` matches any characters, every other character itself.
-- Parameters of `times` are one stack, "h.%d.fc.weight": a pattern is compared with the name of each layer.
local diag = require "base.diag"

local glob = {}

-- Patterns of Lua by the patterns that they stand for.
local lua_patterns = {}

--- Whether the pattern matches the whole `name`.
function glob.matches(pattern, name)
    local lua = lua_patterns[pattern]
    if not lua then
        lua = "^" .. pattern:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*", ".*") .. "$"
        lua_patterns[pattern] = lua
    end
    return name:match(lua) ~= nil
end

--- Whether the pattern matches layer l, counted from 0, of a parameter { name, first, count }.
function glob.takes_layer(pattern, param, l)
    return glob.matches(pattern, (param.name:gsub("%%d", tostring(param.first + l))))
end

--- Whether the pattern matches a parameter { name, first, count }. A pattern that matches only some layers
--- of a stack is refused at `at`; `what` names the pattern's owner in the message.
function glob.takes(pattern, param, at, what)
    local taken, missed
    for l = param.first, param.first + param.count - 1 do
        local name = param.name:gsub("%%d", l)
        if glob.matches(pattern, name) then taken = name else missed = name end
    end
    if taken and missed then
        diag.fail(at, ("%s: '%s' takes %s but not %s, expected all layers of times or none"):format(
            what, pattern, taken, missed), { found = pattern })
    end
    return taken ~= nil
end

--- Refuses a pattern that matches none of `params`, which is probably misspelt.
function glob.check(pattern, params, at, what)
    local names, any = {}, false
    for _, param in ipairs(params) do
        for l = 0, param.count - 1 do any = any or glob.takes_layer(pattern, param, l) end
        names[#names + 1] = param.name:gsub("%%d", "*")
    end
    if not any then
        local notes = { "parameters: " .. table.concat(names, ", ", 1, math.min(#names, 12))
            .. (#names > 12 and ", ..." or "") }
        diag.fail(at, ("%s: no parameter fits '%s'"):format(what, pattern),
            { found = pattern, notes = notes })
    end
end

return glob
