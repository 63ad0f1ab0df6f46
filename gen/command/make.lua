-- make: the `make` of programs. It compiles as many files at once as the process has cores, and the options of a make
-- that runs gagen are none of its own.
local calibration = require "emit.program.calibration"
local diag = require "base.diag"

local make = {}

--- The command of a make with these words.
function make.command(...)
    return { "env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "-u", "MAKELEVEL", "make", "-s",
        "-j" .. calibration.cores(), ... }
end

--- Runs a command whose output is shown only if it fails. at: the place of the diagnostic; what: the command's name in
--- it. Returns the output.
function make.quietly(at, what, argv)
    argv.quiet = true
    local status, output = host.run(argv)
    if status ~= 0 then
        diag.fail(at, ("%s failed: %s"):format(what, output or ""), { kind = "environment" })
    end
    return output
end

return make
