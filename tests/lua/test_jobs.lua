-- job.sbatch, for ranks under Slurm.
local launched = dofile "tests/lua/launched.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- A srun that starts two tasks, as Slurm would: each has its number; a signal goes to both.
local SRUN = [[
echo "$@" >> "$WORDS"
tasks=
trap 'kill -USR1 $tasks; stopped=yes' USR1
for task in 0 1; do
    SLURM_PROCID=$task SLURM_LOCALID=$task "$@" &
    tasks="$tasks $!"
done
worst=0
for task in $tasks; do
    stopped=yes
    while [ -n "$stopped" ]; do stopped=; code=0; wait $task || code=$?; done
    [ $code -lt $worst ] || worst=$code
done
exit $worst
]]

-- A job is sent USR1, queued again, sent USR1 again and then done. tasks: the text of a srun; words: what it is given
-- before the options, a pattern.
local function queued_twice(t, c, tasks, words)
    launched.script(t, c.folder, "srun", tasks)
    launched.script(t, c.folder, "scontrol", '[ "$1" = show ] && echo localhost || echo "$@" >> "$WORDS"\n')
    local id = 20000 + tonumber(t.run { "sh", "-c", "echo $$" }.out) % 20000      -- a port, too
    table.move({ "WORDS=" .. c.folder .. "/words", "SLURM_JOB_ID=" .. id, "SLURM_JOB_NODELIST=n[1-2]",
        "SLURM_NTASKS=2", "SLURM_SUBMIT_DIR=" .. c.program }, 1, 5, #c.env + 1, c.env)
    local function job(restarts, cycles, more)
        return t.run { "sh", "-c", ([[
            export SLURM_RESTART_COUNT=%s
            sh %s/job.sbatch --quiet --cycles %s & job=$!
            %s
            wait $job]]):format(restarts, c.program, cycles, more), env = c.env, timeout = 120 }
    end
    local log = ("%s/runs/job-%d.0/log.jsonl"):format(c.program, id)
    for restarts, wait in ipairs { "until grep -qs update " .. log, "until grep -qs resumed_from.*cycle- " .. log } do
        local result = job(restarts - 1, 100000000, wait .. "; do sleep 0.05; done; kill -USR1 $job")
        t.equal(result.status, 75, result.err)
    end
    local list = launched.log_of(t, c, ("job-%d.0"):format(id))
    local result = job(2, list[#list].cycle + 2, "")
    t.equal(result.status, 0, result.err)
    local given = host.read(c.folder .. "/words"):gsub(words .. "%S*/train ", ""):gsub(" %-%-quiet[^\n]*", "")
    t.equal(given,
        (("--run job-N.0\nrequeue N\n--resume job-N.0\nrequeue N\n--resume job-N.0\n"):gsub("N", id)))
end

-- Ranks of MPI, each of which gets the signal, as from Slurm's own.
local MPI = [[
echo "$@" >> "$WORDS"
mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 "$@" & launcher=$!
trap 'kill -USR1 $(cat /proc/$launcher/task/*/children)' USR1
while kill -0 $launcher 2> /dev/null; do wait $launcher; code=$?; done
exit $code
]]

add("job.sbatch saves on USR1, is queued again and goes on: MPI", function(t)
    local _, p = launched.build(t)
    queued_twice(t, launched.copy(t, p), MPI, "")
end)

add("job.sbatch saves on USR1, is queued again and goes on: processes", function(t)
    local _, c = launched.device_copy(t)
    queued_twice(t, c, SRUN, "sh %-c [^\n]* ")
end)

return tests
