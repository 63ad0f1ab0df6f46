-- A rank that is killed, stopped or hangs is named by the others, which end with exit 3; the last checkpoint is whole,
-- and the run goes on to the bits of one that was never disturbed. A long save is no fault.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last", split = { eval = 30 } }
batch      (3)
accumulate (2)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 100000000, seed = 3 }
eval       { every = 20 }
checkpoint { every = 10, keep = 2 }
parallel   "ddp"
]]

local function open(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    return programs, programs.build("pulse", SPEC, { comm = "mpi", sources = { "tests/e2e/slow_ranks.c" },
        ldflags = "-Wl,--wrap=ga_init_uniform,--wrap=ga_loader_release,--wrap=ga_eval_batch,--wrap=fsync" })
end

-- Starts three ranks in shells that tell mpirun nothing of their ends, waits until the victim is where it should be,
-- and sends the signal. Says how long the others outlived that, in ms, and with what exit codes they ended. A victim
-- that was stopped goes on then.
local SCRIPT = [[
unset MAKEFLAGS MFLAGS MAKELEVEL GAGEN_DATA; cd %s; export %s SLOW_FILE=slow
mpirun --allow-run-as-root --oversubscribe --bind-to none -n 3 sh -c 'trap "" TERM; "$@" &
    echo $! > rank$OMPI_COMM_WORLD_RANK
    wait $!; echo $? > status$OMPI_COMM_WORLD_RANK' sh %s --quiet --threads 1 --log log %s & run=$!
until %s; do sleep 0.02; done
victim=$(cat rank%d); began=$(date +%%s%%3N); kill -%s $victim
for rank in $(cat rank? | grep -v $victim); do while kill -0 $rank 2>/dev/null; do sleep 0.02; done; done
echo "outlived by $(($(date +%%s%%3N) - began)) ms"; kill -CONT $victim 2>/dev/null; wait $run; echo $(cat status?)]]

-- o: place (else in training), rank, signal, env, words of the command line; ends: exit code of the victim [3].
local function disturb(t, p, o)
    local folder = t.temp()
    local ready = o.place and "[ -s slow ] && sleep 0.3" or "grep -qs '\"cycle\":5[0-9],' log"
    local slow = o.place and ("SLOW='%s %d 20'"):format(o.place, o.rank) or ""
    local result = t.run { "bash", "-c", SCRIPT:format(folder, (o.env or "") .. " " .. slow, p.train, o.words, ready,
        o.rank, o.signal), timeout = 60 }
    local ms, codes = t.match(result.out, "outlived by (%d+) ms\n([%d ]+)\n")
    local expected = { 3, 3, 3 }
    if o.signal == "KILL" then expected[o.rank + 1] = 137 end
    t.equal(codes, table.concat(expected, " "), result.err)
    if tonumber(ms) > o.limit then error(("the others ended after %s ms, at most %d expected"):format(ms, o.limit)) end
    return result.err, folder
end

-- The run whose checkpoints lie in `folder` goes on from the last one to the bits of a run that was not disturbed.
local function goes_on(t, programs, p, folder)
    local last = 0
    for _, name in ipairs(host.list(folder)) do last = math.max(last, tonumber(name:match "^cycle%-(%d+)$" or 0)) end
    assert(last > 0, "no checkpoint")
    local function ended(...) return { ranks = 3, "--threads", 1, "--cycles", last + 3, ... } end
    programs.identical(programs.dump(p, ended("--resume", "latest", "--checkpoint", folder)),
        programs.dump(p, ended()), { "parameters", "state" })
end

-- `times` lines begin so, and no other line speaks of a lost rank.
local function says(t, err, pattern, times)
    local found = 0
    for line in err:gmatch("[^\n]+") do
        if line:find("^rank %d on ") then
            t.match(line, pattern)
            found = found + 1
        end
    end
    if found < times or found > 3 then error(("%d lines, at least %d expected:\n%s"):format(found, times, err)) end
end

-- In training a rank computes, saves or evaluates.
local PLACE = " [%a ]+ cycle %d+, %a[%a -]+ %d+; resume with %-%-resume "

-- Words for data and checkpoints: of a run of its own, or in this folder.
local function words(t, programs, checkpoints)
    return ("--data %s/%s/data"):format(t.root, programs.folder())
        .. (checkpoints and " --checkpoint " .. checkpoints or "")
end

add("kill -9 of a rank in training: the others name it and its place, and the run goes on", function(t)
    local programs, p = open(t)
    t.run { "rm", "-rf", p.folder .. "/runs" }
    local err = disturb(t, p, { rank = 1, signal = "KILL", limit = 2000, words = words(t, programs) })
    says(t, err, "^rank 1 on %S+ was killed %(connection closed%)" .. PLACE .. "001$", 2)
    goes_on(t, programs, p, p.folder .. "/runs/001/checkpoints")
end)

-- Each case: place, rank, signal, the line of the others, ms until they have ended.
local CASES = {
    { "saving", 0, "STOP", "was silent for 1 s %(GAGEN_SILENCE%) saving cycle 10, %a+ %d+", 4000 },
    { nil, 0, "KILL", "was killed %(connection closed%)" .. PLACE, 2000 },
    { nil, 1, "STOP", "was silent for 1 s %(GAGEN_SILENCE%)" .. PLACE, 4000 },
    { "saving", 0, "KILL", "was killed %(connection closed%) saving cycle 10, %a+ %d+", 2000 },
    { "start", 1, "KILL", "was killed %(connection closed%) at the start", 2000 },
    { "start", 0, "STOP", "was silent for 1 s %(GAGEN_SILENCE%) at the start", 4000 },
    { "evaluating", 1, "KILL", "was killed %(connection closed%) evaluating behind cycle 20, %a[%a -]+ %d+", 2000 },
    { "evaluating", 2, "STOP", "was silent for 1 s %(GAGEN_SILENCE%) evaluating behind cycle 20, %a[%a -]+ %d+", 4000 },
}

for i, case in ipairs(CASES) do
    local place, rank, signal, line, limit = table.unpack(case, 1, 5)
    add(("SIG%s of rank %d, %s"):format(signal, rank, place or "training"), function(t)
        if i > 1 and not t.all then t.not_run("long: make test-all") end
        local programs, p = open(t)
        local err, folder = disturb(t, p, { place = place, rank = rank, signal = signal, env = "GAGEN_SILENCE=1",
            limit = limit, words = words(t, programs, "c") })
        says(t, err, ("^rank %d on %%S+ %s"):format(rank, line), signal == "STOP" and 3 or 2)
        if place ~= "start" and place ~= "saving" then goes_on(t, programs, p, folder .. "/c") end
    end)
end

add("a rank that computes without end hangs after GAGEN_TIMEOUT", function(t)
    local programs, p = open(t)
    local err = disturb(t, p, { place = "computing", rank = 1, signal = "0", env = "GAGEN_TIMEOUT=1", limit = 4000,
        words = words(t, programs, "c") })
    says(t, err, "^rank 1 on %S+ hangs, for 1 s %(GAGEN_TIMEOUT%) in cycle 1, small sum %d+$", 3)
end)

-- Meanwhile the threads of the pulse are looked at: how often they ran.
local LOOK = [[
until [ -s %s/slow ]; do sleep 0.02; done
for turn in 1 2; do
    sum=0
    for name in $(grep -lx pulse /proc/[0-9]*/task/*/comm 2>/dev/null); do
        grep -q SLOW_FILE=%s/slow ${name%%/task/*}/environ 2>/dev/null || continue
        set -- $(cat ${name%%comm}schedstat); sum=$((sum + $3))
    done
    echo "sum $sum"; sleep 1
done]]

add("a save of three times GAGEN_TIMEOUT is no fault; the pulse sleeps between its messages", function(t)
    local programs, p = open(t)
    local folder = t.temp()
    local look = t.root .. "/" .. folder .. "/look.sh"
    t.write(folder .. "/look.sh", LOOK:format(folder, folder))
    local result = t.run { "sh", "-c", ("sh %s & wait=$!; \"$@\"; echo status $?; wait $wait"):format(look), "sh",
        "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "3", p.train, "--quiet",
        "--threads", "1", "--cycles", "12", "--checkpoint", folder .. "/c", "--data", programs.folder() .. "/data",
        env = { "SLOW=saving 0 3", "SLOW_FILE=" .. folder .. "/slow", "GAGEN_TIMEOUT=1" } }
    t.match(result.out, "status 0\n")
    t.equal(host.exists(folder .. "/c/cycle-000000012/manifest.json"), "file")
    local first, second = t.match(result.out, "sum (%d+)\nsum (%d+)\n")
    local each = (second - first) / 3      -- ten messages a second, and an answer to some
    if not (each > 0 and each < 20) then error(("a pulse ran %.1f times in a second"):format(each)) end
end)

-- All ranks rest for three times GAGEN_SILENCE, as in a computer that sleeps, and go on one after the other.
local SLEEP = [[
cd %s; export GAGEN_SILENCE=1
mpirun --allow-run-as-root --oversubscribe --bind-to none -n 3 %s --quiet --threads 1 --log log %s & run=$!
until grep -qs update log; do sleep 0.05; done
ranks=$(cat /proc/$run/task/$run/children); kill -STOP $ranks; sleep 3; before=$(wc -l < log)
for rank in $ranks; do kill -CONT $rank; sleep 0.1; done; sleep 1.5; echo "$before to $(wc -l < log)"
kill -TERM $ranks; wait $run; echo "status $?"]]

add("ranks that all slept train on", function(t)
    t.long()
    local programs, p = open(t)
    local result = t.run { "bash", "-c", SLEEP:format(t.temp(), p.train, words(t, programs, "c")), timeout = 60 }
    local before, behind = t.match(result.out, "(%d+) to (%d+)\nstatus 75\n")
    assert(tonumber(behind) > tonumber(before), result.err)
end)

add("ranks end with a launcher that is killed", function(t)
    local programs, p = open(t)
    local folder = t.temp()
    local result = t.run { "bash", "-c", ([[
        mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 %s --quiet --threads 1 %s --log %s/log & run=$!
        until grep -qs update %s/log; do sleep 0.02; done
        ranks=$(cat /proc/$run/task/$run/children); kill -KILL $run; i=0
        for rank in $ranks; do
            while kill -0 $rank 2>/dev/null && [ $i -lt 100 ]; do i=$((i + 1)); sleep 0.02; done
        done
        echo "gone after $i looks:" $ranks]])
        :format(p.train, words(t, programs, folder), folder, folder), timeout = 60 }
    local looks = t.match(result.out, "^gone after (%d+) looks: %d+ %d+\n$")
    assert(tonumber(looks) < 100, "a rank lives on")
end)

-- The ranks are started one by one, as torchrun does.
local DEVICES = [[
cd %s; export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ %% 12000))
for rank in 1 0; do RANK=$rank LOCAL_RANK=$rank %s --quiet --log log$rank %s & eval rank$rank=$!; done
until grep -qs update log0; do sleep 0.05; done
kill -KILL $rank1; wait $rank0; echo "status $?"]]

add("kill -9 of a rank that mpirun did not start, on two devices", function(t)
    local devices = t.load("tests/lua/devices.lua")
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local p = programs.build("pulse_cuda", SPEC .. 'target "cuda"\n')
    local result = t.run { "bash", "-c", DEVICES:format(t.temp(), p.train, words(t, programs, "c")), env = environment(),
        timeout = 100 }
    t.match(result.out, "status 3\n")
    t.match(result.err, "rank 1 on %S+ was killed %(connection closed%) [%a ]+ cycle %d+, %a[%a -]+ %d+")
end)

add("GAGEN_SILENCE is a number of seconds", function(t)
    local programs, p = open(t)
    local result = programs.train(p, { "--cycles", 1, env = { "GAGEN_SILENCE=1.5" }, status = 1 })
    t.equal(result.err, "pulse: GAGEN_SILENCE: '1.5' found, seconds from 1 to 86400 expected\n")
end)

return tests
