-- Programs on several ranks: threads of each, `gagen run -n`, requests to stop, failed ranks, run.sh.
local launched = dofile "tests/lua/launched.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local TRAINS = "-- --quiet --cycles 100000000 --log $log"

-- The number of threads that a run logs.
local function threads(programs, p, o)
    table.move({ "--cycles", 1 }, 1, 2, #o + 1, o)
    return programs.events(p, o)[1].threads
end

-- Ranks divide the cores that their masks have in common; a launcher that binds ranks has divided them already.
add("a rank takes its part of the cores that it may use", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local text = launched.SPEC:gsub('"fc1" { 8 }', '"fc1" { 2048 }, tanh {}, linear "fc2" { 2048 }', 1)
        :gsub('"fc2" { 3', '"fc3" { 3')
    local p = programs.build("launch_masks", text, { comm = "mpi", options = { "--ranks", "2" },
        sources = { "tests/e2e/masks.c" }, ldflags = "-Wl,--wrap=sched_getaffinity,--wrap=open" })
    t.equal(threads(programs, p, { before = { "taskset", "-c", "0" } }), 1)
    t.equal(threads(programs, p, { ranks = 2, "--threads", 3 }), 3)
    for masks, expected in next, { ["0:8 0:8"] = 4, ["0:4 4:4"] = 4, ["0:6 4:6"] = 3, ["0:4 4:4 0:4"] = 2 } do
        local _, ranks = masks:gsub(":", "")
        t.equal(threads(programs, p, { ranks = ranks, env = { "MASKS=" .. masks, "GAGEN_TIMEOUT=300" } }), expected)
    end
end)

-- mpicc's compiler: takes the objects of the tests' build for sources of the runtime but the engine.
local COMPILER = [[
for word; do
    if [ "$before" = -o ]; then target=$word; fi
    case $word in */comm_*.c|*_exchange.c) ;; *.c) object=%s/${word%%.c}.o ;; esac
    before=$word
done
if [ -f "$object" ]; then exec cp "$object" "$target"; fi
exec cc "$@"
]]

add("run -n builds with the engine of the target, for that number of ranks", function(t)
    local programs, p = launched.build(t)
    local folder = t.root .. "/" .. t.temp()
    launched.script(t, folder, "cc", COMPILER:format(t.root .. "/" .. t.build))
    local result = programs.gagen { "run", p.spec, "-o", folder .. "/program", "-n", "2", "--", "--quiet", "--cycles",
        "1", env = { "OMPI_CC=" .. folder .. "/bin/cc", "CFLAGS=-O0", "XDG_CACHE_HOME=" .. folder } }
    t.equal(result.status, 0, result.err)
    local start = t.load("tests/lua/json.lua").lines(host.read(folder .. "/program/runs/001/log.jsonl"))[1]
    t.equal(start.ranks, 2)
    t.equal(t.load("tests/lua/json.lua").read(host.read(folder .. "/program/plan.json")).ranks, 2)
    t.match(table.concat(host.list(folder .. "/gagen"), " "), "^runtime%-%x+%.o$")      -- kept for the next program
end)

add("run -n computes what mpirun does by hand", function(t)
    local programs, p = launched.build(t)
    local c, dump = launched.copy(t, p), t.temp()
    local result = launched.run(programs, c, "-n", "2", "--", "--cycles", "20", "--dump", dump)
    t.equal(result.status, 0, result.err)
    t.equal(t.load("tests/lua/json.lua").lines(host.read(c.program .. "/runs/001/log.jsonl"))[1].ranks, 2)
    programs.identical(dump, programs.dump(p, { ranks = 2, "--cycles", 20 }), { "parameters", "gradients" })
end)

add("a request to stop reaches the ranks, which save: status 75", function(t)
    local programs, p = launched.build(t)
    local c = launched.copy(t, p)
    for _, signal in ipairs { "TERM", "INT" } do
        local result = launched.in_script(t, c, "-n 2 " .. TRAINS, ([[
            until grep -qs update $log; do sleep 0.05; done
            kill -%s $run; wait $run; code=$?; tail -n 2 $log; exit $code]]):format(signal))
        t.equal(result.status, 75, signal .. "\n" .. result.err)
        t.match(result.out, '^{"event": ?"checkpoint"[^\n]*\n{"event": ?"end"[^\n]*"signal"')
    end
end)

-- An mpirun that hands no signal on.
local KEEPS = [[
trap : USR1
%s "$@" & launcher=$!
while kill -0 $launcher 2> /dev/null; do wait $launcher; code=$?; done
exit $code
]]

add("a request to stop reaches the ranks below a launcher that hands no signal on", function(t)
    local _, p = launched.build(t)
    local c = launched.copy(t, p)
    launched.script(t, c.folder, "mpirun", KEEPS:format(t.match(t.run { "sh", "-c", "command -v mpirun" }.out, "%S+")))
    local result = launched.in_script(t, c, "-n 2 " .. TRAINS, [[
        until grep -qs update $log; do sleep 0.05; done
        kill -TERM $run; wait $run; code=$?; tail -n 1 $log; exit $code]])
    t.equal(result.status, 75, result.err)
    t.match(result.out, '^{"event": ?"end"[^\n]*"signal"')
end)

add("a second Ctrl-C ends the ranks at once", function(t)
    local _, p = launched.build(t)
    local result = launched.in_script(t, launched.copy(t, p), "-n 2 " .. TRAINS, [[
        until grep -qs update $log; do sleep 0.05; done
        ranks=$(ranks); set -- $ranks; kill -STOP $2
        kill -INT $run; sleep 0.3; kill -INT $run; wait $run; code=$?
        for p in $ranks; do for i in $(seq 100); do kill -0 $p 2> /dev/null && sleep 0.05; done; done
        for p in $ranks; do kill -0 $p && code=1; done 2> /dev/null; exit $code]])
    t.equal(result.status, 130, result.err)
end)

-- The status behind a rank that is killed: that of the rank, or of a survivor that has noticed, as either comes first.
local LOST = { [137] = true, [3] = true }

add("the status of a failed rank is gagen's", function(t)
    local programs, p = launched.build(t)
    local c = launched.copy(t, p)
    local init = t.temp() .. "/init.safetensors"
    t.equal(launched.run(programs, c, "-n", "2", "--", "--save-init", init, "--cycles", "1").status, 0)
    t.write(init, host.read(init):sub(1, -5) .. string.pack("<f", 0 / 0))
    t.equal(launched.run(programs, c, "-n", "2", "--", "--quiet", "--init", init).status, 4)
    t.equal(launched.run(programs, c, "-n", "2", "--restart", "2", "--", "--init", init .. "s").status, 1)
    local result = launched.in_script(t, c, "-n 2 " .. TRAINS, [[
        until grep -qs update $log; do sleep 0.05; done
        set -- $(ranks); kill -KILL $2; wait $run; code=$?; kill -0 $1 && code=1; exit $code]])
    assert(LOST[result.status], result.err)
end)

-- Waits for a checkpoint of run 001, and kills a rank.
local LOSES_A_RANK = [[
        until ls -d $program/runs/001/checkpoints/cycle-*; do sleep 0.05; done > /dev/null 2>&1
        set -- $(ranks); kill -KILL $2
]]

add("--restart goes on from the newest checkpoint of the run, bit for bit", function(t)
    local programs, p = launched.build(t)
    local c = launched.copy(t, p)
    local result = launched.in_script(t, c, "-n 2 --restart 1 -- --quiet --cycles 100000000", LOSES_A_RANK .. [[
        until grep -qs '"resumed_from": *".' $program/runs/001/log.jsonl; do sleep 0.05; done
        kill -TERM $run; wait $run]])
    t.equal(result.status, 75, result.err)
    local status = result.err:match "launch: a rank failed with status (%d+); the ranks start again from run 001 %("
    assert(LOST[tonumber(status)], result.err)
    t.equal(host.list(c.program .. "/runs"), { "001", "latest" })
    local log = t.load("tests/lua/json.lua").lines(host.read(c.program .. "/runs/001/log.jsonl"))
    local cycles, dump, updates = log[#log].cycle + 2, t.temp(), 0
    for _, event in ipairs(log) do
        if event.event == "update" then
            updates = updates + 1
            t.equal(event.cycle, updates)
        end
    end
    result = launched.run(programs, c, "-n", "2", "--", "--quiet", "--cycles", tostring(cycles), "--resume", "001",
        "--dump", dump)
    t.equal(result.status, 0, result.err)
    programs.identical(dump, programs.dump(p, { ranks = 2, "--cycles", cycles }), { "parameters" })
end)

add("after a stop on request nothing starts again", function(t)
    local _, p = launched.build(t)
    local result = launched.in_script(t, launched.copy(t, p), "-n 2 --restart 1 " .. TRAINS, [[
        until grep -qs update $log; do sleep 0.05; done
        ranks=$(ranks); set -- $ranks; kill -STOP $2
        kill -TERM $run; sleep 0.3; kill -KILL $2; wait $run]])
    assert(LOST[result.status], result.err)
    t.equal(result.err:find("again", 1, true), nil)
end)

-- A launcher that writes down its words and fails. $VERSION: what it says of itself.
local FAILS = [[
[ "$1" != --version ] || { echo "VERSION"; exit; }
echo "$@" >> LOG
MORE
exit STATUS
]]

-- gagen's result for a launcher that ends with this status, and the lines of words that it got.
local function with_launcher(t, programs, c, how, ...)
    local log = t.temp() .. "/words"
    launched.script(t, c.folder, "mpirun", (FAILS:gsub("%u+", { VERSION = how.version or "mpirun (Open MPI) 4.1.4",
        LOG = t.root .. "/" .. log, STATUS = tostring(how.status), MORE = how.more or "" })))
    local result = launched.run(programs, c, "-n", "2", ...)
    t.equal(result.status, how.status, result.err)
    local lines = {}
    for line in host.read(log):gmatch "[^\n]+" do lines[#lines + 1] = line:gsub("%S*/program/train", "train") end
    return lines, result.err
end

add("which failures start the ranks again, how often, with which words", function(t)
    local programs, p = launched.build(t)
    local c = launched.copy(t, p)
    for status, starts in next, { [0] = 1, [1] = 1, [4] = 1, [75] = 1, [3] = 3, [134] = 3 } do
        local lines, text = with_launcher(t, programs, c, { status = status }, "--restart", "2", "--", "--run", "a")
        t.equal(#lines, starts, "status " .. status)
        t.match(lines[1], " train %-%-run a$")
        if starts > 1 then
            t.match(lines[2], " train$")
            t.contains(text, ("launch: a rank failed with status %d; the ranks start again from the beginning "
                .. "(restart 2 of 2)\n"):format(status))
        end
    end
end)

add("a restart goes on from what the start before it has made", function(t)
    local programs, p = launched.build(t)
    local c, own = launched.copy(t, p), t.root .. "/" .. t.temp() .. "/own"
    local function make(name) return ("mkdir -p %s; touch %s/manifest.json\n"):format(name, name) end
    local function run(name) return make(("%s/runs/%s/checkpoints/cycle-000000200"):format(c.program, name)) end
    for _, case in ipairs {
        { run "005", {}, { "--resume", "005" } },
        { run "b", { "--run", "b", "--quiet" }, { "--quiet", "--resume", "b" } },
        { run "c", { "--run=c" }, { "--resume", "c" } },
        { run "007", { "--resume=latest" }, { "--resume", "007" } },
        { "", { "--resume=latest" }, { "--resume=latest" }, old = run "006" },
        { run "006", { "--resume", "006" }, { "--resume", "006" }, old = run "006" },
        { "", { "--resume", "x/runs/006/checkpoints/cycle-000000100" }, { "--resume", "006" }, old = run "006" },
        { make(own .. "1/cycle-000000200"), { "--checkpoint", own .. "1" },
            { "--checkpoint", own .. "1", "--resume", own .. "1/cycle-000000200" } },
        { make(own .. "2/cycle-000000200"), { "--checkpoint=" .. own .. "2" },
            { "--checkpoint=" .. own .. "2", "--resume", own .. "2/cycle-000000200" },
            old = make(own .. "2/cycle-000009000") },
        { run "001", { "--checkpoint", own .. "3" }, { "--checkpoint", own .. "3" } } } do
        local runs = c.program .. "/runs"
        t.equal(t.shell(("rm -rf %s; mkdir %s; %s"):format(runs, runs, case.old or "")).status, 0)
        local lines = with_launcher(t, programs, c, { status = 3, more = case[1] }, "--restart", "1", "--",
            table.unpack(case[2]))
        for i, words in ipairs { case[2], case[3] } do
            t.equal(lines[i]:match " train ?(.*)$", table.concat(words, " "))
        end
    end
end)

add("the words for each mpirun, with --hosts", function(t)
    local programs, p = launched.build(t)
    local c = launched.copy(t, p)
    local root = t.run { "id", "-u" }.out == "0\n" and "--allow-run-as-root " or ""
    local hydra, open = { status = 1, version = "HYDRA build details:" }, { status = 1 }
    local function words(how, ...) return with_launcher(t, programs, c, how, ...)[1] end
    t.equal(words(open, "--", "--seed", "3"), "--oversubscribe --bind-to none " .. root .. "-n 2 train --seed 3")
    t.equal(words(hydra), "-bind-to none -n 2 train")
    t.equal(words(open, "--hosts", "a,b-1.c:1"), "--oversubscribe --bind-to none " .. root
        .. "--host a,b-1.c:1 -n 2 train")
    t.equal(words(hydra, "--hosts", "a:2,b:2"), "-bind-to none -hosts a:2,b:2 -n 2 train")
end)

-- A launcher that starts one rank, kills it after its first updates, and stays.
local STAYS = [[
[ "$1" != --version ] || { echo "mpirun (Open MPI) 4"; exit; }
while [ "${1##*/}" != train ]; do shift; done
"$@" & rank=$!
until grep -qs update $LOG; do sleep 0.05; done
sleep 0.3; kill -KILL $rank; wait $rank; exec sleep 30
]]

add("a launcher that outlives a failed rank by 5 seconds is ended", function(t)
    local programs, p = launched.build(t)
    local c, log = launched.copy(t, p), t.root .. "/" .. t.temp() .. "/log"
    launched.script(t, c.folder, "mpirun", (STAYS:gsub("%$LOG", log)))
    local before = t.clock()
    local result = launched.run(programs, c, "-n", "2", "--", "--quiet", "--cycles", "100000000", "--log", log)
    t.equal(result.status, 3, result.err)
    assert(t.clock() - before < 60)
end)

add("the ranks end with gagen", function(t)
    local _, p = launched.build(t)
    local result = launched.in_script(t, launched.copy(t, p), "-n 2 " .. TRAINS, [[
        until grep -qs update $log; do sleep 0.05; done
        ranks=$(ranks); kill -KILL $run
        for p in $ranks; do while kill -0 $p; do sleep 0.1; done 2> /dev/null; echo ended; done]])
    t.equal({ result.status, result.out }, { 0, "ended\nended\n" }, result.err)
end)

add("ranks that gagen starts itself: the numbers, a stop, a failure", function(t)
    local programs, c, p, environment = launched.device_copy(t)
    local dump, expected = t.temp(), t.temp()
    local result = launched.run(programs, c, "-n", "2", "--", "--cycles", "5", "--dump", dump)
    t.equal(result.status, 0, result.err)
    programs.train(p, { before = { "tests/device/ranks", "2" }, "--cycles", 5, "--dump", expected,
        env = environment() })
    programs.identical(dump, expected, { "parameters", "gradients" })
    result = launched.in_script(t, c, "-n 2 " .. TRAINS, [[
        until grep -qs update $log; do sleep 0.05; done
        kill -TERM $run; wait $run]])
    t.equal(result.status, 75, result.err)
    result = launched.in_script(t, c, "-n 2 " .. TRAINS, [[
        until grep -qs update $log; do sleep 0.05; done
        set -- $(ranks); kill -STOP $1; kill -KILL $2; wait $run; code=$?; kill -0 $1 && code=1; exit $code]])
    assert(LOST[result.status], result.err)
    result = launched.in_script(t, c, "-n 2 " .. TRAINS, [[
        until grep -qs update $log; do sleep 0.05; done
        ranks=$(ranks); kill -KILL $run
        for p in $ranks; do while kill -0 $p; do sleep 0.1; done 2> /dev/null; echo ended; done]])
    t.equal({ result.status, result.out }, { 0, "ended\nended\n" }, result.err)
end)

add("other numbers of ranks, other modes and a missing mpirun are refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path, into = programs.folder() .. "/launch_refused.lua", t.temp() .. "/program"
    local function refused(text, status, message, words, env)
        t.write(path, text)
        local result = programs.gagen { "run", path, "-o", into, env = env, table.unpack(words) }
        t.equal({ result.status, result.err:sub(1, #message) }, { status, message }, result.err)
        t.equal(host.exists(into), false)
    end
    local alone = launched.SPEC:gsub("parallel[^\n]*", "")
    local ranks, place = launched.SPEC:gsub('"ddp"', '{ "ddp", ranks = 2 }'), path .. ":9: parallel: "
    refused(ranks, 1, place .. "ranks is 2, but -n says 4\n", { "-n", "4" })
    refused(ranks, 1, place .. "ranks is 2, but -n says 1\n", { "--ranks", "1" })
    local needs = 'gagen: --ranks: the spec has no parallel "ddp" or "zero1" or "zero2" or "zero3"\n'
    refused(alone, 1, needs, { "-n", "4" })
    refused(alone .. 'parallel "none"\n', 1, needs, { "-n", "4" })
    refused(alone, 1, "gagen: --restart: the spec is for one process, expected the word parallel\n",
        { "-n", "1", "--restart", "1" })
    refused(launched.SPEC, 1, "gagen: -n: '0', expected 1..256\n", { "-n", "0" })
    refused(launched.SPEC, 1, "gagen: --restart: given without the number of ranks, expected -n N too\n", { "--restart", "1" })
    refused(launched.SPEC, 1, "gagen: --hosts: given without the number of ranks, expected -n N too\n", { "--hosts", "a:2" })
    refused(launched.SPEC, 1, "gagen: --hosts: a:2,b takes 3 ranks, expected at least the 4 of -n\n",
        { "-n", "4", "--hosts", "a:2,b" })
    for _, wrong in ipairs { "", "a b", "a:", "a:0", "a:2x", ":2" } do
        refused(launched.SPEC, 1, ("gagen: --hosts: '%s' found in 'c:4,%s', expected HOST or HOST:N, as in a:2,b:2\n"):format(
            wrong, wrong), { "-n", "4", "--hosts", "c:4," .. wrong })
    end
    refused(launched.SPEC .. 'target "cuda"\n', 1, "gagen: --hosts: the ranks of this target start on this machine alone\n"
        .. "on several: sbatch job.sbatch in the program's folder, or a launcher that sets RANK, WORLD_SIZE, ",
        { "-n", "4", "--hosts", "a:4" })
    refused(launched.SPEC, 3, "mpirun: not found in PATH, expected an MPI ", { "-n", "2" }, { "PATH=" .. t.temp() })
end)

add("run.sh starts the ranks that the program was made for, or those of -n", function(t)
    local programs, p = launched.build(t)
    local c = launched.copy(t, p)
    local dump = t.temp()
    local script_path = c.program .. "/run.sh"
    local function started(...)
        return t.run { "sh", script_path, env = { "GAGEN_TIMEOUT=300" }, ... }
    end
    local result = started("--quiet", "--cycles", "20", "--dump", dump)
    t.equal(result.status, 0, result.err)
    t.equal(launched.log_of(t, c, "001")[1].ranks, 2)
    programs.identical(dump, programs.dump(p, { ranks = 2, "--cycles", 20 }), { "parameters", "gradients" })
    t.equal(started("-n", "1", "--", "--quiet", "--cycles", "1", "--log", c.folder .. "/log").status, 0)
    t.equal(t.load("tests/lua/json.lua").lines(host.read(c.folder .. "/log"))[1].ranks, 1)
    t.equal(started("-n", "2", "--cycle", "1").status, 1)
    for _, wrong in ipairs { "x", "0", "-1", "" } do
        result = started("-n", wrong)
        t.equal({ result.status, result.err },
            { 1, ("run.sh: -n: '%s' found, expected the number of ranks\n"):format(wrong) })
    end
    launched.script(t, c.folder, "dirname", 'echo "${1%/*}"')
    result = t.run { "/bin/sh", script_path, env = { "PATH=" .. c.folder .. "/bin" } }
    t.equal({ result.status, result.err },
        { 3, "run.sh: mpirun: not found in PATH, expected an MPI that starts the ranks\n" })
end)

add("run.sh starts processes for a device, and hands a stop on", function(t)
    local programs, c, p, environment = launched.device_copy(t)
    local dump, expected = t.temp(), t.temp()
    local result = t.run { "sh", c.program .. "/run.sh", "--cycles", "5", "--dump", dump, env = c.env }
    t.equal(result.status, 0, result.err)
    programs.train(p, { before = { "tests/device/ranks", "2" }, "--cycles", 5, "--dump", expected,
        env = environment() })
    programs.identical(dump, expected, { "parameters", "gradients" })
    for _, shell in ipairs { "sh", "bash" } do
        result = t.run { "sh", "-c", ([[
            %s %s/run.sh --quiet --cycles 100000000 --log LOG & run=$!
            until grep -qs update LOG; do sleep 0.05; done
            kill -TERM $run; wait $run]]):format(shell, c.program):gsub("LOG", c.folder .. "/" .. shell), env = c.env }
        t.equal(result.status, 75, result.err)
    end
    result = t.run { "sh", c.program .. "/run.sh", "--hosts", "a:2", env = c.env }
    t.equal(result.status, 1)
    t.match(result.err, "^run.sh: %-%-hosts: the ranks start on this machine alone; ")
end)

add("scripts that start ranks are beside programs with ranks only, and are clean", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/launch_scripts.lua"
    local clean = t.run { "sh", "-c", "command -v shellcheck" }.status == 0
    for _, case in ipairs { { 'parallel "ddp"\n', 'ranks="" hosts=""\n' },
        { 'parallel { "ddp", ranks = 3 }\n', 'ranks=3 hosts=""\n' },
        { 'parallel "ddp"\ntarget "cuda"\n', 'ranks="" hosts=""\n' },
        { 'parallel "none"\n' }, { 'target "cuda"\n' } } do
        local into = t.temp() .. "/program"
        t.write(path, (launched.SPEC:gsub("parallel[^\n]*\n", case[1])))
        t.equal(programs.gagen { path, "-o", into }.status, 0)
        for _, name in ipairs { "run.sh", "job.sbatch" } do
            local file = into .. "/" .. name
            t.equal(host.exists(file), case[2] and "file" or false)
            if case[2] and clean then
                local result = t.run { "shellcheck", "-S", "warning", file }
                t.equal(result.status, 0, result.out)
            end
        end
        if case[2] then
            t.contains(host.read(into .. "/run.sh"), case[2])
        else
            local result = t.run { "make", "-s", "-C", into, "COMM=mpi" }
            t.equal(result.status, 2)
            t.contains(result.err, "COMM=mpi: this program is for one process, several need the word parallel in the "
                .. "spec")
        end
    end
end)

return tests
