-- Runs of a program: each start has a folder of its own, an earlier run keeps every byte, a resumed run goes on in its
-- folder, and run.json says how it was started, how it differs from the run before, and how it ended.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (4)
accumulate (4)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 0.05 }
checkpoint { every = 4, keep = 3 }
train      { updates = 30, seed = 1 }
]]

local function open(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("runs", SPEC)
    t.run { "rm", "-rf", p.folder .. "/runs" }
    return programs, p, t.load("tests/lua/json.lua")
end

-- Starts the program without --checkpoint, so that its run has the checkpoints.
local function start(t, p, ...)
    local words = { p.train, "--quiet", ... }
    words.env = { "GAGEN_TIMEOUT=300", "GAGEN_DATA" }
    return t.run(words)
end

local function record(json, p, name) return json.read(host.read(("%s/runs/%s/run.json"):format(p.folder, name))) end
local function log(json, p, name) return json.lines(host.read(("%s/runs/%s/log.jsonl"):format(p.folder, name))) end

-- All files below a folder with their contents' hashes.
local function contents(t, folder)
    return t.shell(("cd %s && find . -type f -not -name .lock | sort | xargs sha256sum"):format(folder)).out
end

local function checkpoints(p, name)
    local list = {}
    for _, file in ipairs(host.list(("%s/runs/%s/checkpoints"):format(p.folder, name))) do
        if file:find "^cycle%-" then list[#list + 1] = file end
    end
    return list
end

add("a second run leaves every byte of the first", function(t)
    local _, p, json = open(t)
    t.equal(start(t, p, "--cycles", "6").status, 0)
    local first = contents(t, p.folder .. "/runs/001")
    t.equal(start(t, p, "--cycles", "9", "--seed", "5").status, 0)
    t.equal(contents(t, p.folder .. "/runs/001"), first)
    t.equal(checkpoints(p, "001"), { "cycle-000000004", "cycle-000000006" })
    t.equal(checkpoints(p, "002"), { "cycle-000000004", "cycle-000000008", "cycle-000000009" })
    t.equal(host.read(p.folder .. "/runs/002/spec.lua"), SPEC)
    local one, two = record(json, p, "001"), record(json, p, "002")
    t.equal({ one.run, one.program, one.seed, one.differs }, { "001", "runs", 1, nil })
    t.equal({ two.run, two.seed, two.differs }, { "002", 5, { "seed: 1 -> 5", "cycles: 6 -> 9" } })
    t.equal({ one["end"].reason, one["end"].cycle, two["end"].cycle }, { "done", 6, 9 })
    t.equal(log(json, p, "002")[1].seed, 5)
    t.equal(t.run { "readlink", p.folder .. "/runs/latest" }.out, "002\n")
end)

add("a run is named, and the name is taken once", function(t)
    local _, p, json = open(t)
    t.equal(start(t, p, "--run", "wide-2", "--cycles", "2").status, 0)
    t.equal(record(json, p, "wide-2")["end"].cycle, 2)
    local again = start(t, p, "--run", "wide-2", "--cycles", "2")
    t.equal(again.status, 1)
    t.contains(again.err, "--run wide-2: there is a run of this name; --resume wide-2 goes on with it")
    for _, name in ipairs { "a/b", "latest", "-x", ".hidden", ("n"):rep(64) } do
        local refused = start(t, p, "--run=" .. name)
        t.equal(refused.status, 1, name)
        t.contains(refused.err, "--run: '")
    end
    t.equal(start(t, p, "--cycles", "2").status, 0)       -- numbers do not count names
    t.equal(record(json, p, "001").differs, {})
end)

add("eight starts at once are eight runs", function(t)
    local _, p, json = open(t)
    local words = {}
    for seed = 1, 8 do
        words[seed] = ("%s --quiet --cycles 3 --threads 1 --seed %d &"):format(p.train, seed)
    end
    local result = t.run { "sh", "-c", table.concat(words, "\n") .. "\nwait", env = { "GAGEN_DATA" } }
    t.equal(result.status, 0, result.err)
    local seen = {}
    for number = 1, 8 do
        local name = ("%03d"):format(number)
        local seed = record(json, p, name).seed
        t.equal(log(json, p, name)[1].seed, seed)
        assert(not seen[seed], "two runs of one seed")
        seen[seed] = true
    end
end)

add("a resumed run goes on in its folder, and its log is cut back to the checkpoint", function(t)
    local programs, p, json = open(t)
    local straight = programs.dump(p, { "--cycles", 12 })
    t.run { "rm", "-rf", p.folder .. "/runs" }
    t.equal(start(t, p, "--cycles", "10").status, 0)
    t.equal(start(t, p, "--cycles", "2", "--seed", "3").status, 0)
    local other = contents(t, p.folder .. "/runs/002")
    -- run 001 was killed behind cycle 10: the checkpoint of cycle 8 is its newest
    t.run { "rm", "-r", p.folder .. "/runs/001/checkpoints/cycle-000000010" }
    local file = p.folder .. "/runs/001/log.jsonl"
    t.write(file, host.read(file) .. '{"event":"upd')
    local dump = t.temp()
    local resumed = start(t, p, "--resume", "001", "--cycles", "12", "--dump", dump)
    t.equal(resumed.status, 0, resumed.err)
    programs.identical(dump, straight)
    t.equal(contents(t, p.folder .. "/runs/002"), other)
    local cycles, from = {}, nil
    for _, event in ipairs(log(json, p, "001")) do
        if event.event == "update" then cycles[#cycles + 1] = event.cycle end
        if event.event == "start" then from = event.resumed_from end
    end
    t.equal(cycles, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 })
    t.match(from, "/runs/001/checkpoints/cycle%-000000008$")
    local now = record(json, p, "001")
    t.equal({ #now.resumed, now["end"].cycle, now["end"].reason }, { 1, 12, "done" })
end)

add("--resume latest takes the newest run that has a whole checkpoint", function(t)
    local _, p, json = open(t)
    t.equal(start(t, p, "--cycles", "4").status, 0)
    t.equal(start(t, p, "--cycles", "4", "--seed", "2").status, 0)
    t.equal(start(t, p, "--cycles", "4", "--seed", "3").status, 0)
    t.run { "rm", "-r", p.folder .. "/runs/003/checkpoints" }
    t.write(p.folder .. "/runs/002/checkpoints/cycle-000000004/model.safetensors", "short")
    local result = start(t, p, "--resume", "latest", "--cycles", "5")
    t.equal(result.status, 0, result.err)
    t.contains(result.err, "runs/002/checkpoints/cycle-000000004 rejected: ")
    t.equal(record(json, p, "001")["end"].cycle, 5)
    t.run { "rm", "-rf", p.folder .. "/runs" }
    result = start(t, p, "--resume", "latest")
    t.equal(result.status, 1)
    t.contains(result.err, "/runs has no run yet")
end)

add("an older checkpoint begins another run: the later ones stay", function(t)
    local _, p, json = open(t)
    t.equal(start(t, p, "--cycles", "8").status, 0)
    local first = contents(t, p.folder .. "/runs/001")
    local path = p.folder .. "/runs/001/checkpoints/cycle-000000004"
    t.equal(start(t, p, "--resume", path, "--cycles", "6").status, 0)
    t.equal(contents(t, p.folder .. "/runs/001"), first)
    t.equal(record(json, p, "002")["end"].cycle, 6)
    t.equal(log(json, p, "002")[2].cycle, 5)
    path = p.folder .. "/runs/001/checkpoints/cycle-000000008"
    t.equal(start(t, p, "--resume", path, "--cycles", "9").status, 0)
    t.equal(record(json, p, "001")["end"].cycle, 9)
end)

add("so it does however its path is written", function(t)
    local _, p = open(t)
    t.equal(start(t, p, "--cycles", "8").status, 0)
    local first = contents(t, p.folder .. "/runs/001")
    local path, link = p.folder .. "/runs/001/checkpoints/cycle-000000004", t.temp() .. "/link"
    t.run { "ln", "-s", t.root .. "/" .. path, link }
    for i, word in ipairs { path .. "/", path .. "/.", link } do
        t.equal(start(t, p, "--resume", word, "--cycles", "6").status, 0, word)
        t.equal(contents(t, p.folder .. "/runs/001"), first, word)
        assert(host.exists(("%s/runs/%03d/run.json"):format(p.folder, i + 1)), word)
    end
    local inside = t.shell(("cd %s/.. && %s --quiet --resume cycle-000000004 --cycles 6"):format(path, p.train))
    t.equal(inside.status, 0, inside.err)
    t.equal(contents(t, p.folder .. "/runs/001"), first)
end)

add("evaluation, samples of initial values and failed starts make no run", function(t)
    local _, p = open(t)
    local file = t.temp() .. "/init.safetensors"
    t.equal(start(t, p, "--eval").status, 0)
    t.equal(start(t, p, "--save-init", file, "--cycles", "1").status, 0)
    t.equal(start(t, p, "--init", "/nowhere.safetensors").status, 1)
    t.equal(start(t, p, "--log", "/nowhere/log").status, 1)
    t.contains(start(t, p, "--profile").err, "--profile: train does not have it, train-probe does: make probe")
    t.contains(start(t, p, "--resume", "nosuch").err, "--resume nosuch: is neither a run in ")
    t.equal(host.list(p.folder .. "/runs"), {})
    t.equal(start(t, p, "--run", "x", "--eval").status, 1)
end)

add("--checkpoint and --log replace those of the run", function(t)
    local _, p, json = open(t)
    local folder = t.temp()
    t.equal(start(t, p, "--checkpoint", folder .. "/c", "--log", folder .. "/log", "--cycles", "4").status, 0)
    assert(host.exists(folder .. "/c/cycle-000000004") and host.exists(folder .. "/log"))
    assert(not host.exists(p.folder .. "/runs/001/checkpoints") and not host.exists(p.folder .. "/runs/001/log.jsonl"))
    t.equal(record(json, p, "001")["end"].cycle, 4)
end)

-- Waits until the log of a run has an event of this cycle.
local function wait_for(t, file, cycle)
    local deadline = t.clock() + 60
    while not (host.exists(file) and host.read(file):find(('"cycle":%d,'):format(cycle), 1, true)) do
        assert(t.clock() < deadline, "no cycle " .. cycle .. " in " .. file)
        t.run { "sleep", "0.01" }
    end
end

add("SIGUSR2 saves and goes on; a deleted folder is made again; Ctrl-C saves and says how to go on", function(t)
    local programs, _, json = open(t)
    local long = programs.build("runs_long", (SPEC:gsub("checkpoint {[^\n]*", ""):gsub("updates = 30",
        "updates = 100000000")))
    t.run { "rm", "-rf", long.folder .. "/runs" }
    local out = t.temp() .. "/out"
    local pid = tostring(t.start { long.train, "--quiet", out = out, env = { "GAGEN_DATA" } })
    local file = long.folder .. "/runs/001/log.jsonl"
    wait_for(t, file, 3)
    local busy = start(t, long, "--resume", "001")
    t.equal(busy.status, 1)
    t.run { "kill", "-USR2", pid }
    local deadline = t.clock() + 60
    while not host.read(file):find '"event":"checkpoint"' do assert(t.clock() < deadline, "no checkpoint") end
    local cycle = tonumber(host.read(file):match '"event":"checkpoint","cycle":(%d+)')
    wait_for(t, file, cycle + 2)
    t.run { "rm", "-rf", long.folder .. "/runs/001/checkpoints" }
    t.run { "kill", "-INT", pid }
    while not host.read(file):find '"event":"end"' do assert(t.clock() < deadline, "no end") end
    while not host.read(out):find "goes on" do assert(t.clock() < deadline, "no message: " .. host.read(out)) end
    t.contains(host.read(out), "/runs/001/checkpoints: was deleted, and is made again")
    t.contains(host.read(out), ("stopped; it goes on with: %s --resume 001"):format(long.train))
    t.equal(record(json, long, "001")["end"].reason, "signal")
    t.equal(start(t, long, "--resume", "001", "--cycles", tostring(1 + record(json, long, "001")["end"].cycle)).status,
        0)
end)

add("SIGUSR2 to a program on a device saves and goes on; the checkpoint continues with the same bits", function(t)
    local programs, environment = devices.open(t)
    local p = programs.build("runs_cuda", (SPEC:gsub("checkpoint {[^\n]*", ""):gsub("updates = 30", "updates = 100000000"))
        .. 'target "cuda"\n')
    local folder, json = t.temp(), t.load("tests/lua/json.lua")
    local file, deadline = folder .. "/log", t.clock() + 60
    local pid = tostring(t.start { p.train, "--quiet", "--log", file, "--checkpoint", folder .. "/c",
        out = folder .. "/out", env = environment() })
    wait_for(t, file, 3)
    t.run { "kill", "-USR2", pid }
    while not host.read(file):find '"event":"checkpoint"' do assert(t.clock() < deadline, "no checkpoint") end
    local cycle = tonumber(host.read(file):match '"event":"checkpoint","cycle":(%d+)')
    wait_for(t, file, cycle + 2)
    t.run { "kill", "-TERM", pid }
    while not host.read(file):find '"event":"end"' do assert(t.clock() < deadline, "no end") end
    local events = json.lines(host.read(file))
    local saved = ("%s/c/cycle-%09d"):format(folder, cycle)
    t.equal({ events[#events].reason, host.exists(saved) }, { "signal", "folder" })
    local resumed = programs.dump(p, { "--cycles", cycle + 3, "--resume", saved, env = environment() })
    programs.identical(resumed, programs.dump(p, { "--cycles", cycle + 3, env = environment() }),
        { "parameters", "state", "gradients" })
end)

add("two ranks are one run", function(t)
    local programs, json = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/json.lua")
    local p = programs.build("runs_ddp", SPEC .. 'parallel "ddp"\n', { comm = "mpi" })
    t.run { "rm", "-rf", p.folder .. "/runs" }
    local function ranks(...)
        local command, words = t.mpirun(2), { p.train, "--quiet", "--threads", "1", ... }
        table.move(words, 1, #words, #command + 1, command)
        command.env = { "GAGEN_TIMEOUT=300", "GAGEN_DATA" }
        return t.run(command)
    end
    local result = ranks("--cycles", "4")
    t.equal(result.status, 0, result.err)
    result = ranks("--resume", "latest", "--cycles", "6")
    t.equal(result.status, 0, result.err)
    t.equal(host.list(p.folder .. "/runs"), { "001", "latest" })
    t.equal(record(json, p, "001")["end"].cycle, 6)
end)

add("a start waits while gagen writes the folder, and gagen does not write while a run goes on", function(t)
    local programs, p = open(t)
    if t.shell("python3 --version").status ~= 0 then t.not_run("python3 holds the lock here, and is not installed") end
    local code = ([[
import fcntl, subprocess, time
f = open(%q, 'r+')
fcntl.lockf(f, fcntl.LOCK_EX)
run = subprocess.Popen([%q, '--quiet', '--cycles', '1'], stderr=subprocess.PIPE, text=True)
time.sleep(1.3)
print('waits' if run.poll() is None else 'does not wait')
fcntl.lockf(f, fcntl.LOCK_UN)
print(run.wait(), run.stderr.read())]]):format(p.folder .. "/.lock", p.train)
    local result = t.run { "python3", "-c", code, env = { "GAGEN_DATA" } }
    t.equal(result.status, 0, result.err)
    t.match(result.out, "^waits\n0 .+ is in use by process %d+: gagen writes its files; this start waits\n")
    local pid = tostring(t.start { p.train, "--quiet", "--cycles", "100000000", out = t.temp() .. "/out",
        env = { "GAGEN_DATA" } })
    wait_for(t, p.folder .. "/runs/002/log.jsonl", 1)
    local words = t.load("tests/lua/marches.lua")(t).words({ p.spec, "-o", p.folder }, SPEC)
    t.equal(programs.gagen(words).status, 0)        -- nothing changes
    local refused = programs.gagen { p.spec, "-o", p.folder, "--set", "train.seed=4" }
    t.run { "kill", "-KILL", pid }
    t.equal(refused.status, 1)
    t.contains(refused.err, (" is used by train (process %s): -o DIR for another folder, or wait"):format(pid))
end)

-- Two of the last three reads of a start fail in turn: of the record of the run before, and of its own at the end. The
-- one between them is of the memory that the run had.
add("a record of the run before that cannot be read keeps no run from its start", function(t)
    local _, p, json = open(t)
    local counts = t.temp() .. "/counts"
    local function second(faults)
        t.run { "rm", "-rf", p.folder .. "/runs" }
        t.equal(start(t, p, "--cycles", "1").status, 0)
        local result = t.run { p.train, "--quiet", "--cycles", "1", env = { "GAGEN_DATA", "GA_FAIL_AT=" .. faults,
            "GA_FAIL_COUNTS=" .. counts, ("LD_PRELOAD=%s/%s/tests/faults/faults.so"):format(t.root, t.build) } }
        t.equal(result.status, 0, result.err)
        return record(json, p, "002"), result.err
    end
    local whole = second ""
    local reads = tonumber(host.read(counts):match "train read (%d+)")
    t.equal({ #whole.differs, whole["end"].cycle }, { 0, 1 })
    local alone = second(("read:%d=EIO"):format(reads - 2))
    t.equal({ alone.run, alone.differs, alone["end"].cycle }, { "002", nil, 1 })
    local open_end, said = second(("read:%d=EIO"):format(reads))
    t.equal({ #open_end.differs, open_end["end"] }, { 0, nil })
    t.contains(said, "runs/002/run.json: cannot be read: Input/output error\n")
end)

-- A folder where `gagen run` of one spec is started: words(more, options) = the command, at_once(commands),
-- log(program, run), hashes(), runs() = what ls says. The runtime that all of them link is compiled before.
local function open_sweep(t)
    local programs, _, json = open(t)
    local o = { folder = t.root .. "/" .. t.temp(), spec = t.root .. "/" .. programs.folder() .. "/runs_sweep.lua" }
    t.write(o.spec, (SPEC:gsub("model [^\n]*", 'model { linear "fc" { 3 } }')))
    function o.words(more, options)
        return ("%s/%s run %s %s -- --quiet --threads 1 --cycles 2 %s"):format(t.root, t.gagen, o.spec, more, options)
    end
    function o.at_once(commands)
        local result = t.run { "sh", "-c", table.concat(commands, " &\n") .. " &\nwait", cwd = o.folder,
            env = { "GAGEN_DATA", "MAKEFLAGS", "CFLAGS=-O0",
                ("XDG_CACHE_HOME=%s/%s/tests/cache"):format(t.root, t.build) } }
        t.equal(result.status, 0, result.err)
    end
    function o.log(program, run)
        return json.lines(host.read(("%s/out/%s/runs/%s/log.jsonl"):format(o.folder, program, run)))
    end
    function o.hashes()             -- of every file; the link runs/latest is none
        return t.shell(("cd %s/out && find . -type f | sort | xargs sha256sum"):format(o.folder)).out
    end
    function o.runs() return json.read(programs.gagen({ "ls", o.spec, "--json", cwd = o.folder }).out) end
    o.at_once { o.words("--set accumulate=1 -o before", "") }
    return o
end

add("eight values at once are eight programs, two seeds share one, a second run changes no byte", function(t)
    local o, commands, expected = open_sweep(t), {}, { "runs_sweep" }
    for a = 1, 8 do
        commands[a] = o.words(("--set accumulate=%d --set optimizer.lr=0.0%d"):format(a, a), "")
        expected[a + 1] = ("runs_sweep--accumulate=%d--optimizer.lr=0.0%d"):format(a, a)
    end
    table.move({ o.words("", "--seed 5"), o.words("", "--seed 6") }, 1, 2, 9, commands)
    o.at_once(commands)
    t.equal(host.list(o.folder .. "/out"), expected)
    for a = 1, 8 do
        local update = o.log(expected[a + 1], "001")[2]
        t.equal({ update.event, update.rows, update.lr }, { "update", 4 * a, tonumber("0.0" .. a) })
        t.contains(host.read(("%s/out/%s/step.c"):format(o.folder, expected[a + 1])), "--set accumulate=" .. a .. " ")
    end
    local seeds = { o.log("runs_sweep", "001")[1].seed, o.log("runs_sweep", "002")[1].seed }
    table.sort(seeds)
    t.equal(seeds, { 5, 6 })
    t.equal(o.log("runs_sweep", "001")[2].rows, 16)
    local runs = o.runs()
    t.equal(#runs, 10)
    for _, run in ipairs(runs) do t.equal({ run.state, run.updates }, { "done", 2 }) end
    local before = o.hashes()
    o.at_once { o.words("--set accumulate=3 --set optimizer.lr=0.03", "--seed 7") }
    local second = "[^\n]*  %./" .. expected[4]:gsub("%p", "%%%0") .. "/runs/002/[^\n]*\n"
    local after, files = o.hashes():gsub(second, "")
    t.equal(after, before, "a second run leaves every byte of all that was there")
    assert(files >= 5, files .. " files of a second run")
end)

-- The cycle of the newest checkpoint that a log reports, or -1.
local function acknowledged(file)
    local cycle = -1
    for line in (host.exists(file) and host.read(file) or ""):gmatch "[^\n]+" do
        cycle = tonumber(line:match '^{"event":"checkpoint","cycle":(%d+),') or cycle
    end
    return cycle
end

-- One run killed at a call of the system, and resumed. say(text): something is wrong.
local function kill_at(t, p, json, call, say)
    t.run { "rm", "-rf", p.folder .. "/runs" }
    local words = { p.train, "--quiet", "--threads", "1", "--cycles", "9" }
    words.env = { "GAGEN_DATA", "LD_PRELOAD=" .. t.root .. "/" .. t.build .. "/tests/faults/faults.so",
        "GA_FAIL_AT=" .. call }
    local killed = t.run(words)
    if killed.status ~= 128 + 9 then return false end
    local folder = p.folder .. "/runs/001"
    local cycle = acknowledged(folder .. "/log.jsonl")
    if host.exists(folder .. "/run.json") then json.read(host.read(folder .. "/run.json")) end
    local resumed = start(t, p, "--resume", "latest", "--threads", "1", "--cycles", "12")
    if resumed.status == 0 then
        if record(json, p, "001")["end"].cycle ~= 12 then say("it ends elsewhere") end
        local last = 0
        for _, event in ipairs(log(json, p, "001")) do
            if event.event == "update" and event.cycle ~= last + 1 then say("cycle " .. event.cycle .. " behind "
                .. last) end
            if event.event == "update" then last = event.cycle end
        end
        local from = tonumber(host.read(folder .. "/log.jsonl"):match '"resumed_from":"[^"]*/cycle%-(%d+)')
        if from < cycle then say(("cycle %d was reported, %d is resumed"):format(cycle, from)) end
    elseif resumed.status ~= 1 or not resumed.err:find "has no run yet"
        and not resumed.err:find "has a whole checkpoint" then
        say(resumed.err)
    elseif cycle >= 0 then
        say("cycle " .. cycle .. " was reported and is lost")
    end
    local fresh = start(t, p, "--threads", "1", "--cycles", "1")
    if fresh.status ~= 0 then say("the next start: " .. fresh.err) end
    return true
end

add("killed at any call of the system, a run is resumed from what it has reported", function(t)
    local _, p, json = open(t)
    local stride, problems, kills = t.all and 1 or 4, {}, 0
    for _, class in ipairs { "open", "write", "fsync", "rename", "mkdir", "unlink", "close" } do
        for _, effect in ipairs { "kill", "killed" } do
            local n, alive = effect == "kill" and 1 or 2, true
            while alive do
                local call = ("%s:%d=%s"):format(class, n, effect)
                alive = kill_at(t, p, json, call, function(text) problems[#problems + 1] = call .. ": " .. text end)
                n, kills = n + 2 * stride, kills + (alive and 1 or 0)
            end
        end
    end
    if #problems > 0 then error(#problems .. " problems:\n" .. table.concat(problems, "\n", 1, math.min(#problems,
        20)), 0) end
    assert(kills >= 40, "only " .. kills .. " kills")
end)

return tests
