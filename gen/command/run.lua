-- run: makes a program, with the runtime that is kept for all programs, and starts it.
local diag = require "base.diag"
local kept_runtime = require "command.kept_runtime"

local run = {}

local function make_command(folder, runtime)
    return { "make", "-s", "-C", folder, runtime and "SOURCES=" .. runtime or nil }
end

--- How the program in `folder` is made of its files: { is_made, make } of program_folder.write. flags: the compiler's,
--- of the spec.
function run.build(folder, files, flags)
    local path, build = kept_runtime.path(files, flags), {}
    function build.is_made()
        if path and host.exists(path) ~= "file" then return false end
        local question = make_command(folder, path)
        question[#question + 1], question.quiet = "-q", true
        return host.run(question) == 0
    end
    function build.make()
        local status, why = host.run(make_command(folder, kept_runtime.make(path, folder)))
        if status ~= 0 then
            diag.fail(folder, "make failed" .. (why and ": " .. why or ""), { kind = "environment" })
        end
    end
    return build
end

--- Starts the program in `folder`; words: its command line. Returns its exit status.
function run.start(folder, words)
    local code, message = host.run { host.absolute(folder .. "/train"), table.unpack(words) }
    if not code then diag.fail(folder .. "/train", message, { kind = "environment" }) end
    return code
end

return run
