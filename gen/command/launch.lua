-- launch: starts the ranks of a program together, and again where one has failed.
local diag = require "base.diag"
local ordered = require "base.ordered"
local targets = require "emit.targets.targets"

local launch = {}

-- Status of a rank whose environment failed; numbers above the second are of ranks that a signal ended.
local FAILED, SIGNALLED = 3, 128

-- Options of the command line that say how ranks are started.
local NEED_RANKS = { "hosts", "restart" }

--- Refuses options of a launch without the number of ranks.
function launch.check_options(o)
    for _, name in ipairs(NEED_RANKS) do
        if o[name] and not o.ranks then
            diag.fail("gagen", ("--%s: given without the number of ranks, expected -n N too"):format(name), {})
        end
    end
end

--- Whether the ranks are started together: if the command line says how many, unless the spec is for one process.
function launch.has_ranks(o, c) return o.ranks ~= nil and c.mode.ranks end

-- The ranks that all hosts take: HOST is one, HOST:N are N.
local function slots_of(hosts)
    local slots = 0
    for entry in (hosts .. ","):gmatch "([^,]*)," do
        local name, count = entry:match "^([%w._-]+):?(%d*)$"
        count = count == "" and not entry:find ":" and 1 or math.tointeger(tonumber(count))
        if not name or not count or count < 1 then
            diag.fail("gagen", ("--hosts: '%s' found in '%s', expected HOST or HOST:N, as in a:2,b:2"):format(entry,
                hosts), {})
        end
        slots = slots + count
    end
    return slots
end

local function check_hosts(o, launcher)
    if not launcher then
        diag.fail("gagen", "--hosts: the ranks of this target start on this machine alone", { notes = {
            "on several: sbatch job.sbatch in the program's folder, or a launcher that sets RANK, WORLD_SIZE, "
            .. "LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun does" } })
    end
    local slots = slots_of(o.hosts)
    if slots < o.ranks then
        diag.fail("gagen", ("--hosts: %s takes %d ranks, expected at least the %d of -n"):format(o.hosts, slots,
            o.ranks), {})
    end
end

--- Refuses another number of ranks than the spec's, hosts that do not take them, and a machine without the launcher.
function launch.check(o, c)
    if o.ranks and c.ranks_of_spec and c.ranks_of_spec ~= o.ranks then
        diag.fail(diag.field(c.parallel_at, "ranks"), ("parallel: ranks is %d, but -n says %d"):format(c.ranks_of_spec,
            o.ranks), { notes = { "the same number in both, or no ranks in the spec" } })
    end
    for _, name in ipairs(NEED_RANKS) do
        if o[name] and not launch.has_ranks(o, c) then
            diag.fail("gagen", ("--%s: the spec is for one process, expected the word parallel"):format(name), {})
        end
    end
    local launcher = targets.of(c).launcher
    if o.hosts then check_hosts(o, launcher) end
    if launch.has_ranks(o, c) and launcher and host.run { launcher, "--version", quiet = true } ~= 0 then
        diag.fail(launcher, "not found in PATH, expected an MPI that starts the ranks", { kind = "environment",
            notes = { "Debian, Ubuntu: apt install openmpi-bin libopenmpi-dev" } })
    end
end

-- The commands that start the ranks, as host.together takes them.
local function commands_of(folder, o, c, words)
    if targets.of(c).launcher then
        local command = { "sh", folder .. "/run.sh", "-n", tostring(o.ranks) }
        if o.hosts then table.move({ "--hosts", o.hosts }, 1, 2, #command + 1, command) end
        command[#command + 1] = "--"
        return { table.move(words, 1, #words, #command + 1, command), below = "train" }
    end
    local port, message = host.free_port()
    if not port then diag.fail("gagen", message, { kind = "environment" }) end
    local list = {}
    for rank = 0, o.ranks - 1 do
        list[rank + 1] = { folder .. "/train", table.unpack(words) }
        list[rank + 1].set = { "RANK=" .. rank, "LOCAL_RANK=" .. rank, "WORLD_SIZE=" .. o.ranks,
            "LOCAL_WORLD_SIZE=" .. o.ranks, "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" .. port }
    end
    return list
end

-- The value of the program's option --NAME among its words, or nil; and the words without both.
local function take(words, name)
    local value, others, i = nil, {}, 1
    while i <= #words do
        local equal = words[i]:match("^%-%-" .. name .. "=(.*)$")
        if words[i] == "--" .. name then
            i, value = i + 1, words[i + 1]
        elseif equal then
            value = equal
        else
            others[#others + 1] = words[i]
        end
        i = i + 1
    end
    return value, others
end

-- The checkpoints in a folder, the oldest first; the program looks whether they are whole.
local function checkpoints_in(folder)
    return ordered.collect(host.list(folder) or {}, function(name)
        return name:find "^cycle%-" and host.exists(("%s/%s/manifest.json"):format(folder, name)) and name or nil
    end)
end

-- The last of the names that was not there before, or nil. `latest` is another name of a run.
local function newest(names, before)
    for i = #names, 1, -1 do
        if names[i] ~= "latest" and not ordered.find(before, names[i]) then return names[i] end
    end
end

-- The names of the runs of the program in `folder`, and of the checkpoints in the folder that the words name.
local function names_now(folder, words)
    local checkpoints = take(words, "checkpoint")
    return { runs = host.list(folder .. "/runs") or {}, checkpoints = checkpoints and checkpoints_in(checkpoints) }
end

-- The value of --resume that goes on where a start with these words has ended: the checkpoint that it has made, or the
-- run that it has made or gone on with; nil if there is none. before: names_now.
local function resumable(folder, words, before)
    local now, parent, resumed = names_now(folder, words), take(words, "checkpoint"), take(words, "resume")
    if parent then
        local made = newest(now.checkpoints, before.checkpoints)
        return made and ("%s/%s"):format(parent, made)
    end
    local run = newest(now.runs, before.runs) or resumed and resumed:match "runs/([^/]+)/checkpoints/" or resumed
    return run and #checkpoints_in(("%s/runs/%s/checkpoints"):format(folder, run)) > 0 and run or nil
end

-- The words of the next start, and the place that it goes on from.
local function next_words(folder, words, before)
    local from = resumable(folder, words, before)
    local _, others = take(words, "run")
    if not from then return others, take(words, "resume") or "the beginning" end
    _, others = take(others, "resume")
    return table.move({ "--resume", from }, 1, 2, #others + 1, others), from:find "/" and from or "run " .. from
end

--- Starts the ranks of the program in `folder` and waits for them. Returns the exit status.
function launch.start(folder, o, c)
    local words = o.rest
    folder = host.absolute(folder)
    for start = 0, o.restart or 0 do
        local before = names_now(folder, words)
        local status, asked = host.together(commands_of(folder, o, c, words))
        if not status then diag.fail(folder, asked, { kind = "environment" }) end
        local failed = status == FAILED or status > SIGNALLED
        if not failed or asked or start == (o.restart or 0) then return status end
        local from
        words, from = next_words(folder, words, before)
        diag.say(c.name, ("a rank failed with status %d; the ranks start again from %s (restart %d of %d)"):format(
            status, from, start + 1, o.restart))
    end
end

return launch
