-- Two hosts made of namespaces: ranks a:2, b:1 compute the bits of one host. A fault in any phase of training ends all
-- processes, also those of mpirun, soon; each survivor names the lost rank; the last checkpoint is whole and the run
-- goes on to the bits of one that was never disturbed.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local TRIALS, RANKS, CYCLES = 1, 3, 40
local SILENCE = 2                                   -- seconds, of GAGEN_SILENCE
local LIMIT_KILLED, LIMIT = 2000, 10000             -- ms from the fault until no process is left

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

local MPIRUN = "mpirun --allow-run-as-root --oversubscribe --bind-to none"

local function open(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    return programs, programs.build("hosts", SPEC, { comm = "mpi", sources = { "tests/e2e/slow_ranks.c" },
        ldflags = "-Wl,--wrap=ga_init_uniform,--wrap=ga_loader_release,--wrap=ga_eval_batch,--wrap=fsync" })
end

-- Runs a script on the first of two hosts; not run where the machine refuses them.
local function on_hosts(t, script, seconds)
    local result = t.run { "sh", "tests/hosts.sh", "--", "bash", "-c", script, timeout = seconds or 60,
        env = { "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "GAGEN_DATA" } }
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

-- Phases: the rank that is slow, seen from the victim, and where and when it is.
local PHASES = {
    { "computing", function(victim) return ("computing %d %%d 25"):format(victim) end },
    { "reducing", function(victim) return ("computing %d %%d 25"):format((victim + 1) % RANKS) end },
    { "saving", function() return "saving 0 %d 12" end },
    { "starting", function(victim) return ("start %d %%d"):format(victim) end },
    { "evaluating", function(victim) return ("evaluating %d %%d 2"):format(victim) end },
}

-- Faults: the shell command, with $victim and $launcher, a process that is the victim's parent; seconds that the slow
-- rank rests; ms until the end.
local FAULTS = {
    { "SIGKILL", "kill -KILL $victim", 20, LIMIT_KILLED },
    { "SIGSTOP", "kill -STOP $victim", 20, LIMIT },
    { "network cut", "ip link set dev to_b down", 20, LIMIT },
    { "disk full", "cat /dev/zero > c/full 2> /dev/null", 1, LIMIT },
    { "launcher killed", "kill -KILL $launcher", 20, LIMIT },
}

-- Trains until the phase is reached, makes the fault, waits for the end of all processes (TRIAL is in their
-- environment), and copies the checkpoints from the small disk of this trial.
local SCRIPT = [[
cd %s; mkdir c; mount -t tmpfs -o size=1m disk c
export GAGEN_SILENCE=%d GAGEN_TIMEOUT=30 SLOW='%s' SLOW_FILE=slow
TRIAL=1 %s --host a:2,b:1 -n 3 sh -c 'echo $$ > rank$OMPI_COMM_WORLD_RANK
    exec "$@" 2> err$OMPI_COMM_WORLD_RANK' sh %s --quiet --threads 1 --log log --data %s --checkpoint c & run=$!
for i in $(seq 500); do [ -s slow ] && break; sleep 0.02; done
sleep 0.3; victim=$(cat rank%d); launcher=$(sed 's/.*) . //; s/ .*//' /proc/$victim/stat)
began=$(date +%%s%%3N); %s
for i in $(seq 750); do
    grep -qs TRIAL=1 /proc/[0-9]*/environ || break
    sleep 0.02
done
echo "gone after $(($(date +%%s%%3N) - began)) ms"
grep -ls TRIAL=1 /proc/[0-9]*/environ | while read f; do tr '\0' ' ' < ${f%%environ}cmdline; echo; done
rm -f c/full; cp -r c checkpoints]]

local function trial(t, programs, p, phase, fault, victim)
    local folder = t.temp()
    local slow = phase[2](victim):format(fault[3])
    local result = on_hosts(t, SCRIPT:format(folder, SILENCE, slow, MPIRUN, p.train,
        t.root .. "/" .. programs.folder() .. "/data", victim, fault[2]))
    local ms = t.match(result.out, "gone after (%d+) ms\n")
    print(phase[1], fault[1], victim, ms, result.out, result.err)
    for rank = 0, 2 do
    print(rank, host.read(folder .. "/err" .. rank))
    end
    print(table.concat(host.list(folder.."/checkpoints"), " "))
end

for _, phase in ipairs(PHASES) do
    for _, fault in ipairs(FAULTS) do
        add(("%s, %s"):format(fault[1], phase[1]), function(t)
            if not t.environment "GAGEN_TEST_ALL" then t.not_run("long: make test-all") end
            local programs, p = open(t)
            for i = 1, TRIALS do
                for victim = 0, RANKS - 1 do trial(t, programs, p, phase, fault, victim) end
            end
        end)
    end
end

return tests
