-- run: makes a program, with the runtime that is kept for all programs, and starts it.
local diag = require "base.diag"
local kept_runtime = require "command.kept_runtime"
local make = require "command.make"

local run = {}

local function make_command(folder, what, runtime)
    return make.command("-C", folder, what, runtime and "SOURCES=" .. runtime or nil)
end

-- How `what` in `folder` is made of the files there: { is_made, make } of program_folder.write. flags: the compiler's,
-- of the spec.
local function build_of(what, folder, files, flags)
    local path, build = kept_runtime.path(files, flags), {}
    function build.is_made()
        if path and host.exists(path) ~= "file" then return false end
        local question = make_command(folder, what, path)
        question[#question + 1], question.quiet = "-q", true
        return host.run(question) == 0
    end
    function build.make()
        local runtime = kept_runtime.make(path, folder, { target = what })
        local status, why = host.run(make_command(folder, what, runtime))
        if status ~= 0 then
            diag.fail(folder, "make failed" .. (why and ": " .. why or ""), { kind = "environment" })
        end
    end
    return build
end

--- How the program in `folder` is made, and how its train-probe is.
function run.build(...) return build_of("train", ...) end
function run.build_probe(...) return build_of("train-probe", ...) end

--- Starts the program in `folder`; words: its command line. Returns its exit status.
function run.start(folder, words)
    local code, message = host.run { host.absolute(folder .. "/train"), table.unpack(words) }
    if not code then diag.fail(folder .. "/train", message, { kind = "environment" }) end
    return code
end

return run
