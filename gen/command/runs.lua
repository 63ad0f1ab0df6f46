-- runs: reads the training runs of programs from their folders, out/NAME/runs/RUN. A run may be going on, or have been
-- killed at any moment: its files may be missing or end in the middle of a line.
local ordered = require "base.ordered"

local runs = {}

local MOST_FACTS = 1 << 20      -- bytes of run.json

-- Reasons to end before the last update that are no failure.
local STOPPED = { signal = true, patience = true }

local function text_or_nil(value) return type(value) == "string" and value or nil end
local function table_or_empty(value) return type(value) == "table" and value or {} end

-- The names of a program's runs. A link is none: `latest` is another name of one.
local function names_of(program)
    local parent = program .. "/runs"
    local real = host.absolute(parent)
    return ordered.collect(host.list(parent) or {}, function(name)
        local path = parent .. "/" .. name
        return host.exists(path) == "folder" and host.absolute(path) == real .. "/" .. name and name or nil
    end)
end

-- Fields of an eval event that are no metrics, and the loss.
local NO_METRIC = { event = true, cycle = true, split = true, rows = true, loss = true }

-- The metrics of an evaluation but its loss, by name; nil: there are none.
local function metrics_of(event)
    local found
    for name, value in ordered.each(event) do
        if type(name) == "string" and not NO_METRIC[name] and (math.type(value) or type(value) == "string") then
            found = found or {}
            found[name] = value
        end
    end
    return found
end

-- The figures of a log: { updates, last, best, metrics }, the losses those of evaluations, the metrics those of the
-- last one. A line counts if it is whole.
local function read_log(path)
    local found = {}
    local file = host.exists(path) == "file" and io.open(path, "rb")
    if not file then return found end
    for line in file:lines "L" do
        local event = line:match '^{"event":%s*"(%l+)".*}\n$'
        if event == "update" then
            found.updates = math.tointeger(tonumber(line:match '"update":%s*(%d+)[,}]')) or found.updates
        elseif event == "eval" then
            local values = table_or_empty(host.parse_json(line))
            local loss = values.loss
            found.metrics = metrics_of(values)
            if math.type(loss) or type(loss) == "string" then found.last = loss end
            if math.type(loss) and not (found.best and found.best <= loss) then found.best = loss end
        end
    end
    file:close()
    return found
end

--- The content of run.json in the folder of a run; an empty table where there is none.
function runs.facts(folder)
    local path = folder .. "/run.json"
    local text = host.exists(path) == "file" and host.read(path, MOST_FACTS)
    return table_or_empty(text and host.parse_json(text))
end

-- The lock is looked at first: a run that ends meanwhile has said why before it gave the lock back.
local function read_run(program, name)
    local folder = program .. "/runs/" .. name
    local running = host.lock_holder(folder .. "/.lock")
    local facts = runs.facts(folder)
    local ended, log = table_or_empty(facts["end"]), read_log(folder .. "/log.jsonl")
    local reason = not running and text_or_nil(ended.reason) or nil
    return { folder = folder, program = program:match "[^/]*$", run = name, started = text_or_nil(facts.started),
        differs = setmetatable(ordered.collect(table_or_empty(facts.differs), text_or_nil), { array = true }),
        updates = not running and math.tointeger(ended.update) or log.updates, last_loss = log.last,
        best_loss = log.best, metrics = log.metrics, bytes = host.disk_size(folder),
        state = running and "running" or reason == "done" and "done" or STOPPED[reason] and "stopped" or "failed",
        reason = reason }
end

-- Runs begin one after the other; where that is unknown, 2 comes before 10.
local function order_of(started, name)
    local digits = name:gsub("%d+", function(digits) return ("0"):rep(20 - #digits) .. digits end)
    return (started or "~") .. "\0" .. digits
end

-- The runs of the program in `folder`, in order.
local function runs_of(folder)
    local own = ordered.collect(names_of(folder), function(run) return read_run(folder, run) end)
    table.sort(own, function(a, b) return order_of(a.started, a.run) < order_of(b.started, b.run) end)
    return own
end

--- The folders of the runs of a program that have the file `name`, in order.
function runs.folders(program, name)
    local own = ordered.collect(names_of(program), function(run)
        local folder = program .. "/runs/" .. run
        return host.exists(folder .. "/" .. name) == "file"
            and { folder = folder, order = order_of(text_or_nil(runs.facts(folder).started), run) } or nil
    end)
    table.sort(own, function(a, b) return a.order < b.order end)
    return ordered.collect(own, function(run) return run.folder end)
end

--- The folder with the file `name` of the run that `path` names: that of the program's newest run that has the file,
--- else itself. A program's folder may have such a file too, as --log says where it lies. nil: there is none.
function runs.folder(path, name)
    local own = runs.folders(path, name)
    return own[#own] or host.exists(path .. "/" .. name) == "file" and path or nil
end

--- Seconds since 1970 of a time in UTC, 2026-11-22T18:30:00Z, or nil.
function runs.seconds_of(utc)
    local year, month, day, hour, minute, second = utc:match "^(%d%d%d%d)-(%d%d)-(%d%d)T(%d%d):(%d%d):(%d%d)"
    if not year then return nil end
    local shifted = (month + 9) % 12                              -- months since March: a leap day comes last
    local years = math.tointeger(year) - (shifted > 9 and 1 or 0)
    local days = 365 * years + years // 4 - years // 100 + years // 400 + (153 * shifted + 2) // 5 + day - 719469
    return math.tointeger(((days * 24 + hour) * 60 + minute) * 60 + second)
end

--- When the run in `folder` began, in seconds since 1970; 0: unknown.
function runs.started(folder)
    local started = text_or_nil(runs.facts(folder).started)
    return started and runs.seconds_of(started) or 0
end

--- The runs of the programs out/NAME and out/NAME--..., or of all below out if `name` is nil, in order: an array of
--- { folder, program = last part of its folder, run = name, started = UTC or nil, differs = array of texts, updates,
--- last_loss, best_loss, metrics = the others of the last evaluation by name, bytes, state = "running", "done",
--- "stopped" or "failed", reason }; updates, losses, metrics, bytes and reason may be nil.
function runs.list(name)
    local list = {}
    for _, program in ipairs(host.list "out" or {}) do
        if not name or program == name or program:sub(1, #name + 2) == name .. "--" then
            local own = runs_of("out/" .. program)
            table.move(own, 1, #own, #list + 1, list)
        end
    end
    return list
end

return runs
