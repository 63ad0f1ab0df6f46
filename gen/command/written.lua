-- written: writes a file that the command line names, whole or not at all: host.write renames it when it is complete.
local diag = require "base.diag"

-- Whether two paths are the same file; links are followed.
local function is_same_file(a, b) return host.exists(b) and host.absolute(a) == host.absolute(b) end

--- Writes `bytes` to the file at `path`, whose folder must be there; a file of that name is replaced. sources: the
--- files that the bytes are made from, or nil; `path` may be none of them.
return function(path, bytes, sources)
    for _, source in ipairs(sources or {}) do
        if is_same_file(source, path) then
            diag.fail(path, "is a file that this command reads: expected another", {})
        end
    end
    local folder, name = path:match("^(.*)/([^/]*)$")
    folder = folder == "" and "/" or folder or "."
    if host.exists(folder) ~= "folder" then diag.fail(folder, "there is no such folder", {}) end
    name = name or path
    local written, message = host.write(folder, name, bytes)
    if written then return end
    local _, last = message:find(name .. ": ", 1, true)     -- behind the path, which begins the message already
    diag.fail(path, message:sub((last or 0) + 1), { kind = "environment" })
end
