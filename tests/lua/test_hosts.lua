-- Two hosts made of namespaces: ranks a:2, b:1 compute the bits of one host. A fault in any phase of training, at three
-- moments of it, ends all processes, also those of mpirun, soon. Each survivor names the lost rank; the last checkpoint
-- is whole, and the run goes on to the bits of one that was never disturbed.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local RANKS, CYCLES = 3, 40
local SILENCE = 2                                   -- seconds, of GAGEN_SILENCE
local LIMIT_KILLED, LIMIT = 2000, 10000             -- ms until all processes have ended behind a kill, another fault

local MODEL = [[
data       { "csv", train = "tiny.csv", target = "last", split = { eval = 30 } }
batch      (3)
accumulate (2)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 100000000, seed = 3 }
eval       { every = 20 }
checkpoint { every = 10, keep = 2 }
]]
local SPEC = MODEL .. 'parallel "ddp"\n'

local MPIRUN = "mpirun --allow-run-as-root --oversubscribe --bind-to none"

local function open(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    return programs, programs.build("hosts", SPEC, { comm = "mpi", sources = { "tests/e2e/slow_ranks.c" },
        ldflags = "-Wl,--wrap=ga_init_uniform,--wrap=ga_loader_release,--wrap=ga_eval_batch,--wrap=fsync" })
end

-- Runs a script on the first of two hosts; not run where the machine refuses them. own: a folder, then a disk of each.
local function on_hosts(t, script, own)
    local command = { "sh", "tests/hosts.sh", "--", "bash", "-c", script, timeout = 60,
        env = { "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "GAGEN_DATA" } }
    if own then table.insert(command, 3, "--own") table.insert(command, 4, own) end
    local result = t.run(command)
    if result.status == 77 then t.not_run(result.err:match "([^\n]*)\n*$") end
    return result
end

-- The words of a training of CYCLES cycles, and the dump of the undisturbed run.
local function ended(...) return { ranks = RANKS, "--threads", 1, "--cycles", CYCLES, ... } end
local function undisturbed(t, programs, p)
    return t.kept("undisturbed ranks of hosts", function() return programs.dump(p, ended()) end)
end

add("three ranks on two hosts compute the bits of one host", function(t)
    local programs, p = open(t)
    local folder = t.temp()
    local result = on_hosts(t, ("%s --host a:2,b:1 -n 3 sh -c 'hostname > %s/host$OMPI_COMM_WORLD_RANK; exec \"$@\"' "
        .. "sh %s --quiet --threads 1 --cycles %d --checkpoint %s/c --dump %s"):format(MPIRUN, folder, p.train, CYCLES,
        folder, folder))
    t.equal(result.status, 0, result.err)
    for rank, host_name in ipairs { "a\n", "a\n", "b\n" } do
        t.equal(host.read(("%s/host%d"):format(folder, rank - 1)), host_name)
    end
    programs.identical(folder, undisturbed(t, programs, p), { "parameters", "state" })
end)

-- Ranks on hosts with disks of their own, for the program and its runs: a stop inside a cycle, the end of that run, and
-- another run of another program from its checkpoint of cycle 20. Host b has the program alone, then as before.
local DISKS = [[
cd %s; own=$PWD/own; on_b() { sh "$root/tests/hosts.sh" --on b "$*"; }
train() { %s "$@"; }
mkdir $own/p $own/q; cp $sharded $own/p/train; cp $whole $own/q/train
on_b "mkdir $own/p $own/q; cp $sharded $own/p/train; cp $whole $own/q/train"
options="--quiet --threads 1 --data $data"
train --host a:2,b:1 -n 3 $own/p/train $options --stop-micro 41; echo "stopped $?"
cp -r $own/p/runs/001/checkpoints $own/saved; cp -r $own/saved saved
train --host a:2,b:1 -n 3 $own/p/train $options --cycles 40 --resume latest --dump $PWD/same; echo "resumed $?"
train --host a:1,b:1 -n 2 $own/q/train $options --cycles 40 --resume $own/saved/cycle-000000020 \
    --checkpoint $own/q/c --dump $PWD/other; echo "other $?"
on_b "cd $own; find . -type f | sort"]]

add("disks of their own: zero1 saves and resumes as with a shared folder", function(t)
    local programs, p = open(t)
    local sharded = programs.build("hosts_zero1", MODEL .. 'parallel "zero1"\n', { comm = "mpi" })
    local folder = t.root .. "/" .. t.temp()
    assert(host.folder(folder .. "/own"))
    local result = on_hosts(t, ("root=%s sharded=%s whole=%s data=%s/%s/data\n"):format(t.root, sharded.train, p.train,
        t.root, programs.folder()) .. DISKS:format(folder, MPIRUN), folder .. "/own")
    t.equal(result.out, "stopped 75\nresumed 0\nother 0\n./p/train\n./q/train\n", result.err)

    local stopped = programs.train(sharded,
        { ranks = RANKS, "--threads", 1, "--stop-micro", 41, status = 75 }).checkpoint
    for _, name in ipairs { "cycle-000000020/", "cycle-000000020-r1/" } do
        for _, file in ipairs(host.list(stopped .. "/" .. name)) do
            local path = "/" .. name .. file
            local same = host.read(folder .. "/saved" .. path) == host.read(stopped .. path)
            t.equal(same or file == "manifest.json", true, path)
        end
    end
    programs.identical(folder .. "/same", undisturbed(t, programs, p), { "parameters", "state" })
    programs.identical(folder .. "/other", programs.dump(p, { ranks = 2, "--threads", 1, "--cycles", CYCLES, "--resume",
        stopped .. "/cycle-000000020" }), { "parameters", "state" })
end)

-- Phases: the place where a rank rests; the rank, by the victim; the pass of the place for each trial: cycles; files of
-- the third save, and its end; tensors; batches of two evaluations. While a rank computes the others are in the
-- reduction.
local PHASES = {
    { "computing", "computing", function(victim) return victim end, { 25, 13, 36 } },
    { "in a reduction", "computing", function(victim) return (victim + 1) % RANKS end, { 25, 13, 36 } },
    { "while rank 0 saves", "saving", function() return 0 end, { 12, 13, 15 } },
    { "starting", "start", function(victim) return victim end, { 1, 2, 4 } },
    { "evaluating", "evaluating", function(victim) return victim end, { 2, 4, 7 } },
}

-- The line of each rank, from 0; false: it is lost itself, or has none.
local function all_but(victim, line)
    local lines = {}
    for rank = 0, RANKS - 1 do lines[rank + 1] = rank ~= victim and line end
    return lines
end

local function host_of(rank) return rank < 2 and "a" or "b" end
local function killed(rank) return ("rank %d on %s was killed (connection closed) "):format(rank, host_of(rank)) end
local function silent(rank)
    return ("rank %d on %s was silent for %d s (GAGEN_SILENCE) "):format(rank, host_of(rank), SILENCE)
end

-- The disk stays full also where a checkpoint leaves. A run goes on behind two saves that have failed; its end begins
-- with the third one.
local FULL = [[
until grep -q 'left on device$' err0; do cat /dev/zero >> c/full 2> /dev/null; sleep 0.02; done
began=$(now)]]

-- Faults: the shell's command, with $victim and $launcher, its parent; seconds that a rank rests; ms until all
-- processes have ended; the lines of the ranks, by the victim.
local FAULTS = {
    { "SIGKILL", "kill -KILL $victim", 20, LIMIT_KILLED, function(victim) return all_but(victim, killed(victim)) end },
    { "SIGSTOP", "kill -STOP $victim", 20, LIMIT, function(victim) return all_but(victim, silent(victim)) end },
    { "network cut", "ip link set dev to_b down", 20, LIMIT, function()
        return { silent(2), silent(2), silent(0) }
    end },
    { "disk full", FULL, 3, LIMIT, function()
        local line = "rank 0 failed with code 3; its own line says why"
        return { "writing failed: No space left on device", line, line }
    end },
    { "launcher killed", "kill -KILL $launcher", 20, LIMIT_KILLED, function(victim)
        return victim == 2 and all_but(2, killed(2)) or { false, false, "on a was killed (connection closed) " }
    end },
}

-- Trains until the rank rests, makes the fault, waits until all processes have ended, and copies the checkpoints from
-- the small disk of this trial. TRIAL is in the environment of them all; a zombie that mpirun has yet to wait for has
-- none.
local SCRIPT = [[
cd %s; mkdir c; mount -t tmpfs -o size=1m disk c
export GAGEN_SILENCE=%d GAGEN_TIMEOUT=30 SLOW='%s' SLOW_FILE=slow
TRIAL=1 %s --host a:2,b:1 -n 3 sh -c 'echo $$ > rank$OMPI_COMM_WORLD_RANK
    exec "$@" 2> err$OMPI_COMM_WORLD_RANK' sh %s --quiet --threads 1 --log log --data %s --checkpoint c &
for i in $(seq 1500); do [ -s slow ] && break; sleep 0.02; done
[ -s slow ] || { echo "the place is not reached"; exit 1; }
sleep 0.3; victim=$(cat rank%d); launcher=$(sed 's/.*) . //; s/ .*//' /proc/$victim/stat)
left() { grep -ls TRIAL=1 /proc/[0-9]*/environ > left; [ -s left ]; }
now() { date +%%s%%3N; }
ms() { echo $(($(now) - began)); }
began=$(now); %s
while left && [ $(ms) -lt 20000 ]; do sleep 0.02; done; echo "ended $(ms)"
for file in $(cat left); do tr '\0' ' ' < ${file%%environ}cmdline; echo; done
rm -f c/full; cp -r c checkpoints]]

-- The checkpoints of a run that had begun are whole: it goes on to the undisturbed bits.
local function goes_on(t, programs, p, checkpoints)
    local dump = programs.dump(p, ended("--resume", "latest", "--checkpoint", checkpoints))
    programs.identical(dump, undisturbed(t, programs, p), { "parameters", "state" })
end

local function trial(t, programs, p, phase, fault, victim, pass)
    local folder = t.temp()
    local place = ("%s %d %d %d"):format(phase[2], phase[3](victim), fault[3], pass)
    local result = on_hosts(t, SCRIPT:format(folder, SILENCE, place, MPIRUN, p.train,
        t.root .. "/" .. programs.folder() .. "/data", victim, fault[2]))
    local ms, left = t.match(result.out, "ended (%d+)\n(.*)$")
    for rank, line in ipairs(fault[5](victim)) do
        if line then t.contains(host.read(("%s/err%d"):format(folder, rank - 1)), line) end
    end
    t.equal(left, "", "processes that are left")
    if tonumber(ms) > fault[4] then
        error(("all processes have ended after %s ms, at most %d expected"):format(ms, fault[4]))
    end
    if phase[2] ~= "start" then goes_on(t, programs, p, folder .. "/checkpoints") end
end

-- All ranks at all moments of the phase; without make test-all the last rank at the first moment.
local function trials(t, phase, fault)
    local programs, p = open(t)
    for i, pass in ipairs(phase[4]) do
        for victim = 0, RANKS - 1 do
            if t.all or i == 1 and victim == RANKS - 1 then
                local done, message = pcall(trial, t, programs, p, phase, fault, victim, pass)
                if not done then error(type(message) == "table" and message or ("rank %d, pass %d: %s"):format(victim,
                    pass, message), 0) end
            end
        end
    end
end

for i, phase in ipairs(PHASES) do
    for k, fault in ipairs(FAULTS) do
        add(("%s, %s"):format(fault[1], phase[1]), function(t)
            if i > 1 or k > 1 then t.long() end
            trials(t, phase, fault)
        end)
    end
end

add("a save of three limits' length on two hosts is no fault", function(t)
    t.long()
    local programs, p = open(t)
    local folder = t.temp()
    local result = on_hosts(t, ("export GAGEN_SILENCE=2 GAGEN_TIMEOUT=2 SLOW='saving 0 6' SLOW_FILE=%s/slow; %s "
        .. "--host a:2,b:1 -n 3 %s --quiet --threads 1 --cycles %d --checkpoint %s/c --data %s/data --dump %s"):format(
        folder, MPIRUN, p.train, CYCLES, folder, programs.folder(), folder))
    t.equal(result.status, 0, result.err)
    t.equal(host.exists(folder .. "/slow"), "file")
    programs.identical(folder, undisturbed(t, programs, p), { "parameters", "state" })
end)

return tests
