-- run_folder: the folder of the run that `gagen export` was asked for.
local diag = require "base.diag"
local runs = require "command.runs"

--- The folder of a run: `path` itself, or the newest run of the program in the folder `path`.
return function(path)
    local given = #path > 1 and path:gsub("/+$", "") or path
    if host.exists(given .. "/run.json") == "file" then return given end
    local newest = host.exists(given .. "/runs") == "folder" and runs.newest(given)
    if newest then return newest end
    diag.fail(path, "no run: expected the folder of a run, such as out/NAME/runs/001, or of a program that has one",
        { notes = { "gagen ls lists the runs" } })
end
