-- Early ends of a run: launchers that the program was not built for, signals to the ranks, non-finite gradients.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (3)
accumulate (4)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 100, seed = 3 }
]]

local function changed(from, to)
    local text, count = SPEC:gsub(from, to)
    assert(count == 1, from)
    return text
end

local function events(t, log)
    return t.load("tests/lua/json.lua").lines(host.read(log))
end

add("a program for one process refuses launchers of more", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("stop", SPEC)
    for _, name in ipairs { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE" } do
        local result = programs.train(p, { "--cycles", 1, env = { name .. "=4" }, status = 1 })
        t.equal(result.err, "stop: started as one of 4 processes (" .. name .. "=4), but this program was built "
            .. "for one: start it once; several need parallel in the spec, and make COMM=mpi\n")
        programs.train(p, { "--cycles", 1, env = { name .. "=1" } })
    end
    programs.train(p, { "--cycles", 1, env = { "SLURM_NTASKS=4" } })  -- once in a batch script of four
end)

add("a program for MPI refuses a launcher that its MPI does not know", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("stop_mpi", SPEC .. 'parallel "ddp"\n', { comm = "mpi" })
    local result = programs.train(p, { "--cycles", 1, env = { "WORLD_SIZE=2" }, status = 1 })
    t.match(result.err, "^stop_mpi: started as one of 2 processes %(WORLD_SIZE=2%), but MPI knows of fewer: ")
    programs.train(p, { ranks = 2, "--cycles", 1, "--threads", 1, env = { "WORLD_SIZE=2", "GAGEN_TIMEOUT=300" } })
end)

-- The processes of a run with two ranks get the signal while they train.
add("signals to the ranks of a run", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("stop_mpi", SPEC .. 'parallel "ddp"\n', { comm = "mpi" })
    local straight = {}
    for _, case in ipairs { { "TERM", "$first" }, { "TERM", "$last" }, { "TERM", "$first $last" },
        { "USR1", "$last" }, { "INT", "$first" } } do
        local folder = t.temp()
        local result = t.shell((([[
            unset MAKEFLAGS MFLAGS MAKELEVEL
            mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 TRAIN --quiet --threads 1 \
                --cycles 100000000 --log FOLDER/log --checkpoint FOLDER/c & run=$!
            until grep -qs update FOLDER/log; do sleep 0.05; done
            set -- $(cat /proc/$run/task/$run/children)
            first=$1; shift $(($# - 1)); last=$1
            kill -SIGNAL WHOM; wait $run]]):gsub("TRAIN", p.train):gsub("FOLDER", folder)
            :gsub("SIGNAL", case[1]):gsub("WHOM", (case[2]:gsub("%%", "%%%%")))))
        t.equal(result.status, 75, case[1] .. " to " .. case[2] .. "\n" .. result.err)
        local list = events(t, folder .. "/log")
        local last = list[#list]
        t.equal({ last.event, last.reason }, { "end", "signal" })
        t.equal({ list[#list - 1].event, list[#list - 1].cycle }, { "checkpoint", last.cycle })
        local cycles = last.cycle + 2
        straight[cycles] = straight[cycles]
            or programs.dump(p, { ranks = 2, "--threads", 1, "--cycles", cycles })
        programs.identical(programs.dump(p, { ranks = 2, "--threads", 1, "--cycles", cycles, "--resume", "latest",
            "--checkpoint", folder .. "/c" }), straight[cycles], { "parameters" })
    end
end)

-- Initial values with one non-finite value.
local function damaged(t, programs, p)
    local file = t.temp() .. "/init.safetensors"
    programs.train(p, { "--cycles", 1, "--save-init", file })
    t.write(file, host.read(file):sub(1, -5) .. string.pack("<f", 0 / 0))
    return file
end

-- An evaluation has nothing to save. This one takes minutes: 90 rows, 65,536 layers that share their weight.
add("a signal ends an evaluation at once", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local text = changed("model [^\n]*", 'local shared = linear "q" { 64 }\n'
        .. 'model { linear "in" { 64 }, times(16384) "h" { shared, tanh {} }, linear "out" { 3 } }')
    local p = programs.build("eval_long", (text:gsub("batch %b()", "batch (1)")))
    local result = t.run { "timeout", "300", "bash", "-c", ("coproc exec %s --eval --threads 1 --checkpoint %s 2>&1; "
        .. "until [ \"$line\" = ready ]; do read -r line <&${COPROC[0]} || exit; done; "
        .. "echo $line; kill -TERM $COPROC_PID; wait $COPROC_PID"):format(p.train, t.temp()) }
    t.equal(result.out, "ready\n")
    t.equal(result.status, 128 + 15)
end)

add("50 skipped updates in a row end the run, the last one in the log", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("stop_skips", changed("seed = 3", 'seed = 3, on_nonfinite = "skip"')
        .. 'checkpoint { every = "end" }\n')
    local log = t.temp() .. "/log"
    local result = programs.train(p, { "--log", log, "--init", damaged(t, programs, p), status = 4 })
    t.match(result.err, "^ready\nstop_skips: cycle 50: 50 updates in a row were skipped because the gradient was "
        .. "not finite or no target counted, at most 49 are expected: [^\n]+\n$")
    local list = events(t, log)
    t.equal(#list, 52)
    for i = 1, 50 do
        t.equal({ list[i + 1].event, list[i + 1].cycle, list[i + 1].skipped }, { "update", i, i })
    end
    t.equal({ list[52].event, list[52].reason, list[52].skipped }, { "end", "nonfinite", 50 })
end)

add("a file that grows beyond its limit is an error, not a signal", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("stop_large", changed("{ 8 }", "{ 800 }"))
    local folder = t.temp()
    local function limited(command)
        return t.run { "bash", "-c", 'ulimit -f "$0"; exec "$@"', "1", table.unpack(command) }
    end
    local result = limited { p.train, "--cycles", "1", "--quiet", "--checkpoint", folder .. "/c" }
    t.match(result.err, "/c/%.tmp[^\n]*: File too large\n$")
    t.equal(result.status, 3)
    result = limited { t.gagen, p.spec, "-o", folder .. "/program" }
    t.match(result.err, "^[^\n]*/program/[%w_./]+: File too large\n$")
    t.equal(result.status, 3)
end)

add("a stack that is too small is made larger, or named", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("stop_large", changed("{ 8 }", "{ 800 }"))
    local function limited(limit, command)
        return t.run { "bash", "-c", 'ulimit $0 128 && exec "$@"', limit, table.unpack(command) }
    end
    local train = { p.train, "--cycles", "1", "--quiet", "--checkpoint", t.temp() }
    local gagen = { t.gagen, "check", p.spec }
    for name, command in next, { stop_large = train, gagen = gagen } do
        t.equal(limited("-Ss", command).status, 0, name)
        local result = limited("-s", command)
        if result.status ~= 0 then      -- 0: this user may raise it
            t.equal({ result.status, result.err },
                { 3, name .. ": the stack is limited to 128 KB (ulimit -s), 4096 KB expected\n" })
        end
    end
end)

add("a warning says at once that non-finite values are ignored", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("stop_ignore", changed("seed = 3", 'seed = 3, on_nonfinite = "ignore"')
        .. "checkpoint { every = 40 }\n")
    local result = programs.train(p, { "--cycles", 50, "--init", damaged(t, programs, p), status = 4 })
    t.match(result.err, "^ready\nstop_ignore: cycle 1: 67 elements of the gradient are not finite, and "
        .. 'train.on_nonfinite is "ignore": the parameters are lost, and such ones are never saved\n'
        .. "stop_ignore: cycle 40: [^\n]*: not saved; training goes on\nstop_ignore: [^\n]*: not saved\n$")
end)

return tests
