-- glob: name patterns of a spec. `*` stands for any characters, everything else for itself.
-- Parameters of `times` are one stack, "h.%d.fc.weight": a pattern takes all its layers or none.
local diag = require "base.diag"

local glob = {}

--- Whether `name` as a whole fits the pattern.
function glob.matches(pattern, name)
    local lua = pattern:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*", ".*")
    return name:match("^" .. lua .. "$") ~= nil
end

--- Whether the pattern takes a parameter { name, first, count }. One that takes some layers of a
--- stack and not the others is refused at `at`; `what` says whose pattern it is.
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

--- Refuses a pattern that takes none of `params`: a name with an error in it changes nothing.
function glob.check(pattern, params, at, what)
    local names, any = {}, false
    for _, param in ipairs(params) do
        any = glob.takes(pattern, param, at, what) or any
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
