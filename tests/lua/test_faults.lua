-- Failing system calls (tests/faults/faults.c), one at a time, while a program trains, saves, resumes, reads and dumps.
-- The program must report the failure and exit with 1 or 3, or finish with the bits of the undisturbed run; reported
-- checkpoints can be resumed. Some calls of every class fail; with make test-all nearly all calls, with every effect,
-- once and persistently.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local CYCLES = 3
local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (3)
accumulate (2)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
checkpoint { every = 1, keep = 2 }
train      { updates = 40, seed = 3 }
]]

-- Possible failures of a call, by errno. Short or interrupted reads and writes must have no visible effect.
local EFFECTS = {
    open = { "EIO", "EMFILE", "EACCES", "ENOSPC" }, read = { "EIO", "EINTR", "short" },
    write = { "ENOSPC", "EINTR", "EIO", "short", "EDQUOT" }, fsync = { "EIO", "ENOSPC" },
    rename = { "EIO", "EINVAL", "ENOSPC" }, unlink = { "EIO", "EBUSY" }, mkdir = { "ENOSPC", "EROFS" },
    close = { "EIO" }, list = { "EIO" }, stat = { "EIO" }, seek = { "EIO" }, truncate = { "EIO" },
    lock = { "EIO", "EAGAIN" }, space = { "ENOSPC", "EIO" }, map = { "ENOMEM" }, alloc = { "ENOMEM" },
    thread = { "EAGAIN" },
}
local UNSEEN, KILLS = { EINTR = true, short = true }, { kill = true, killed = true }

local CLASSES = { "open", "read", "write", "fsync", "rename", "unlink", "mkdir", "close", "list", "stat", "seek",
    "truncate", "lock", "space", "map", "alloc", "thread" }

local SCENARIOS = {
    train = { options = { "--cycles", CYCLES }, status = 0 },
    resume = { options = { "--cycles", CYCLES, "--resume", "latest" }, status = 0, prepared = { 2 } },
    ["stop inside a cycle"] = { options = { "--stop-micro", 3 }, status = 75 },
    ["resume inside a cycle"] = { options = { "--cycles", CYCLES, "--resume", "latest" }, status = 0,
        prepared = { "--stop-micro", 5 } },
    ["initial values"] = { options = { "--cycles", 1, "--init", "INIT", "--save-init", "OUT" }, status = 0 },
}
local ORDER = { "train", "resume", "stop inside a cycle", "resume inside a cycle", "initial values" }

local function copy(t, from, to)
    t.equal(t.run { "cp", "-r", from, to }.status, 0)
end

-- The folder of a scenario, with a copy of its prepared files.
local function prepare(t, programs, p, scenario)
    local base = t.temp()
    scenario.folder = base .. "/prepared"
    assert(host.folder(scenario.folder))
    if scenario.prepared then
        local o = { "--checkpoint", scenario.folder .. "/c", status = false }
        if scenario.prepared[1] == "--stop-micro" then
            table.move(scenario.prepared, 1, 2, #o + 1, o)
        else
            table.move({ "--cycles", scenario.prepared[1] }, 1, 2, #o + 1, o)
        end
        programs.train(p, o)
    end
    programs.train(p, { "--cycles", 1, "--save-init", scenario.folder .. "/init.safetensors" })
end

local function run(t, programs, p, scenario, faults)
    local folder = t.temp() .. "/run"
    copy(t, scenario.folder, folder)
    t.run { "rm", "-rf", p.folder .. "/runs" }     -- each start looks at the runs before
    local o = { "--checkpoint", folder .. "/c", "--log", folder .. "/log", status = false }
    if scenario.status == 0 then table.move({ "--dump", folder .. "/dump" }, 1, 2, #o + 1, o) end
    for _, word in ipairs(scenario.options) do
        o[#o + 1] = word == "INIT" and folder .. "/init.safetensors" or word == "OUT" and folder .. "/out" or word
    end
    o.env = { "LD_PRELOAD=" .. t.root .. "/" .. t.build .. "/tests/faults/faults.so",
        "GA_FAIL_COUNTS=" .. folder .. "/counts", "GA_FAIL_AT=" .. (faults or "") }
    local result = programs.train(p, o)
    result.folder, result.err = folder, result.err:gsub(folder, "FOLDER")
    return result
end

-- The cycle of the last checkpoint in the log. A line that could not be written is missing.
local function acknowledged(folder)
    local cycle = -1
    for line in (host.exists(folder .. "/log") and host.read(folder .. "/log") or ""):gmatch("[^\n]+") do
        cycle = tonumber(line:match('^{"event":"checkpoint","cycle":(%d+),')) or cycle
    end
    return cycle
end

local function dumped(folder)
    local file = folder .. "/dump/parameters.safetensors"
    return host.exists(file) == "file" and host.read(file)
end

-- Without faults the next run resumes the newest checkpoint, ends with the right bits, and leaves only checkpoints in
-- the folder.
local function recover(t, programs, p, result, expected, say)
    local checkpoint, cycle = result.folder .. "/c", acknowledged(result.folder)
    local found = false
    for _, name in ipairs(host.exists(checkpoint) == "folder" and host.list(checkpoint) or {}) do
        found = found or name:find("^cycle%-") ~= nil
    end
    if cycle >= 0 and not found then say("cycle " .. cycle .. " was acknowledged and is not there") end
    local dump = t.temp()
    local o = { "--cycles", CYCLES, "--checkpoint", checkpoint, "--dump", dump, "--log", dump .. "/log",
        status = false }
    if found then table.move({ "--resume", "latest" }, 1, 2, #o + 1, o) end
    local again = programs.train(p, o)
    if again.status ~= 0 then say("the next run ends with " .. again.status .. ": " .. again.err) end
    local from = host.read(dump .. "/log"):match('"resumed_from":"[^"]*/cycle%-(%d+)')
    if cycle >= 0 and tonumber(from or -1) < cycle then say("resumed from " .. tostring(from) .. ", not " .. cycle) end
    if host.read(dump .. "/parameters.safetensors") ~= expected then say("the next run ends with other bits") end
    for _, name in ipairs(host.list(checkpoint)) do
        if not name:find("^cycle%-%d+$") and not name:find("^cycle%-%d+%-r%d+$") and name ~= ".lock" then
            say("left behind: " .. name)
        end
    end
end

-- One run with faults: checks its messages and exit status.
local function judge(result, effect, scenario, clean, say)
    local reason = (("\n" .. result.err):gsub("[^\n]*training goes on\n", "")):match("\n(faults: [^\n]+)")
    if result.timed_out then say("it hangs") end
    if KILLS[effect] then
        if result.status ~= 128 + 9 then say("status " .. result.status .. ", not killed") end
    elseif result.status == scenario.status then
        if dumped(result.folder) ~= clean.bits then say("it ends as if nothing was and has other bits") end
    elseif result.status ~= 1 and result.status ~= 3 then
        say("status " .. result.status .. ": " .. result.err)
    elseif not (reason or ""):find("^faults: .+: .+") then
        say("no message: " .. result.err)
    end
    if UNSEEN[effect] and (result.status ~= scenario.status or result.err ~= clean.err) then
        say("seen: " .. result.err)
    end
end

-- Tries the effects on the calls of a scenario. limit: about so many calls of a class, all if there
-- are fewer; on each of them every effect, once and from then on, if `whole`, else one in turn.
local function try_all(t, name, effects, limit, whole)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p, scenario = programs.build("faults", SPEC), SCENARIOS[name]
    prepare(t, programs, p, scenario)
    local clean = run(t, programs, p, scenario)
    t.equal(clean.status, scenario.status, clean.err)
    clean.bits = dumped(clean.folder)
    local bits = host.read(programs.dump(p, { "--cycles", CYCLES }) .. "/parameters.safetensors")
    local counts, problems, runs, seen = host.read(clean.folder .. "/counts"), {}, 0, 0
    local function try(class, n, more, effect)
        local plan = ("%s:%d%s=%s"):format(class, n, more, effect)
        local result = run(t, programs, p, scenario, plan)
        local function say(what) problems[#problems + 1] = plan .. ": " .. what end
        judge(result, effect, scenario, clean, say)
        local ended = result.status ~= scenario.status
        if (whole or ended or n % 7 == 0) and name ~= "initial values" then
            recover(t, programs, p, result, bits, say)
        end
        runs, seen = runs + 1, seen + (ended and 1 or 0)
    end
    for _, class in ipairs(CLASSES) do
        local list, count = effects[class] or {}, tonumber(counts:match(class .. " (%d+)\n"))
        local stride = count // limit + 1
        for n = 1, #list > 0 and count or 0, stride do
            local turn = (n - 1) // stride % math.max(#list, 1) + 1
            for i = whole and 1 or turn, whole and #list or turn do
                try(class, n, "", list[i])
                if whole and not UNSEEN[list[i]] and not KILLS[list[i]] then try(class, n, "+", list[i]) end
            end
        end
    end
    if #problems > 0 then
        error(("%d problems in %d runs:\n%s"):format(#problems, runs, table.concat(problems, "\n", 1,
            math.min(#problems, 40))), 0)
    end
    assert(seen > 0, "no fault was seen in " .. runs .. " runs")
end

for _, name in ipairs(ORDER) do
    add("calls of the system fail: " .. name, function(t)
        local whole = t.all
        try_all(t, name, EFFECTS, whole and 250 or 25, whole)
    end)
end

add("a disk without room for the checkpoints", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p, scenario = programs.build("faults", SPEC), SCENARIOS.train
    prepare(t, programs, p, scenario)
    local result = run(t, programs, p, scenario, "space:1=ENOSPC")
    t.equal(result.status, 3)
    t.match(result.err, "^faults: [^\n]*/c: %d+ bytes free on the disk, %d+ needed for 3 checkpoints: free some, "
        .. "or keep fewer\n$")
end)

for _, name in ipairs { "train", "resume inside a cycle" } do
    add("killed at a call of the system: " .. name, function(t)
        local effects, whole = {}, t.all
        for _, class in ipairs { "write", "fsync", "rename", "unlink", "mkdir", "close", "open" } do
            effects[class] = { "kill", "killed" }
        end
        try_all(t, name, effects, whole and 250 or 8, whole)
    end)
end

return tests
