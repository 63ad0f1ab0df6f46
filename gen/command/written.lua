-- written: writes a file that the command line names, whole or not at all: host.write renames it when it is complete.
local diag = require "base.diag"

--- Writes `bytes` to the file at `path`, whose folder must be there; a file of that name is replaced.
return function(path, bytes)
    local folder, name = path:match("^(.*)/([^/]*)$")
    folder = folder == "" and "/" or folder or "."
    if host.exists(folder) ~= "folder" then diag.fail(folder, "there is no such folder", {}) end
    local written, message = host.write(folder, name or path, bytes)
    if not written then diag.fail(path, message, { kind = "environment" }) end
end
