-- temporary: a folder that is there only while a function runs.
local diag = require "base.diag"

-- Removes a file or a folder with its contents; links are removed, not followed.
local function remove(path)
    if host.remove(path) ~= nil then return end
    for _, name in ipairs(host.list(path) or {}) do remove(path .. "/" .. name) end
    host.remove(path)
end

--- Returns f(folder) of a new folder, which is removed then, also behind an error. at: the place of a diagnostic.
return function(at, f)
    local folder, message = host.temporary()
    if not folder then diag.fail(at, message, { kind = "environment" }) end
    local done, result = xpcall(f, function(problem)
        return diag.is(problem) and problem or debug.traceback(problem)
    end, folder)
    remove(folder)
    if not done then error(result, 0) end
    return result
end
