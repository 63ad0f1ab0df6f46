-- run: makes a program, with the runtime that is kept for all programs, and starts it.
local diag = require "base.diag"
local kept_runtime = require "command.kept_runtime"

--- Makes and starts the program in `folder`, which has these files; flags: the compiler's, of the spec; words: the
--- program's command line. Returns its exit status.
return function(folder, files, flags, words)
    local make = { "make", "-s", "-C", folder }
    local runtime = kept_runtime(folder, files, flags)
    if runtime then make[#make + 1] = "SOURCES=" .. runtime end
    local status, why = host.run(make)
    if status ~= 0 then
        diag.fail(folder, "make failed" .. (why and ": " .. why or ""), { kind = "environment" })
    end
    local code, message = host.run { host.absolute(folder .. "/train"), table.unpack(words) }
    if not code then diag.fail(folder .. "/train", message, { kind = "environment" }) end
    return code
end
