-- Copies of a program of two ranks that tests of `gagen run -n` and of its scripts start and stop.
local launched = {}

--- The program: two ranks, 100 updates of a tiny model.
launched.SPEC = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (3)
accumulate (4)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
checkpoint { every = 200 }
train      { updates = 100, seed = 3 }
parallel   "ddp"
]]

--- The program of SPEC, as `gagen run -n 2` makes it.
function launched.build(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    return programs, programs.build("launch", launched.SPEC, { comm = "mpi", options = { "--ranks", "2" } })
end

--- A script in the folder bin of a test.
function launched.script(t, folder, name, text)
    t.write(folder .. "/bin/" .. name, "#!/bin/sh\n" .. text)
    t.equal(t.run { "chmod", "+x", folder .. "/bin/" .. name }.status, 0)
end

--- A copy of the program: { folder, run }. run: the words of `gagen run` for it, with a `make` that finds all made.
function launched.copy(t, p)
    local folder = t.root .. "/" .. t.temp()
    t.equal(t.run { "cp", "-a", p.folder, folder .. "/program" }.status, 0)
    t.equal(t.run { "rm", "-rf", folder .. "/program/runs" }.status, 0)
    launched.script(t, folder, "make", "")
    return { folder = folder, program = folder .. "/program",
        run = { "run", p.spec, "-o", folder .. "/program" },
        env = { "GAGEN_TIMEOUT=300", "PATH=" .. folder .. "/bin:" .. t.environment "PATH" } }
end

--- Runs gagen with these words for the copy c.
function launched.run(programs, c, ...)
    local words = table.move(c.run, 1, #c.run, 1, { env = c.env })
    return programs.gagen(table.move({ ... }, 1, select("#", ...), #words + 1, words))
end

--- The same in the background of a shell script, which knows gagen as $run, the program as $program, a fresh log as
-- $log; `children PROCESS` prints the numbers of its children, `ranks` those of the ranks.
function launched.in_script(t, c, words, text)
    local command = { t.root .. "/" .. t.gagen, table.unpack(c.run) }
    return t.run { "sh", "-c", ([[
        unset MAKEFLAGS MFLAGS MAKELEVEL
        log=%s/log program=%s/program
        children() { cat /proc/$1/task/*/children; }
        ranks() { for p in $(children $run) $(children $(children $run)); do
            case $(readlink /proc/$p/exe) in $program/train) echo $p ;; esac; done 2> /dev/null; }
        rm -f $log
        %s %s & run=$!
        %s]]):format(c.folder, c.folder, table.concat(command, " "), words, text), env = c.env, timeout = 120 }
end

--- The copy of a program for the device library of the tests.
function launched.device_copy(t)
    local devices = t.load("tests/lua/devices.lua")
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local p = programs.build("launch_cuda", launched.SPEC .. 'target "cuda"\n', { options = { "--ranks", "2" } })
    local c = launched.copy(t, p)
    table.move(environment(), 1, #environment(), #c.env + 1, c.env)
    return programs, c, p, environment
end

--- The log of the only run of the copy c, whose name this is.
function launched.log_of(t, c, name)
    t.equal(host.list(c.program .. "/runs"), { name, "latest" })
    return t.load("tests/lua/json.lua").lines(host.read(("%s/runs/%s/log.jsonl"):format(c.program, name)))
end

return launched
