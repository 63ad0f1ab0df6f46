-- log: reads the log of a run (docs/LOG.md) as columns. A run may be going on, or have been killed at any moment: the
-- last line may end in its middle. With `--log` a file may hold several runs, and resumed ones whose later events were
-- not cut off.
local diag = require "base.diag"
local log_lines = require "report.log_lines"
local ordered = require "base.ordered"

local log = {}

local SPECIAL = { nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }

-- Fields of an update that are counters of the run, not figures of the update.
local COUNTERS = { event = true, cycle = true, update = true, micro = true, epoch = true }

-- Fields of an evaluation that are no metrics.
local NO_METRIC = { event = true, cycle = true, split = true, rows = true, best = true }

-- A number of the log as a float, "nan" and "inf" as what they say; false: none.
local function number_of(value) return math.type(value) and value + 0.0 or SPECIAL[value] or false end

local function new_run(path)
    return { path = path, start = {}, cycles = {}, rows = {}, columns = {}, evals = {},
        skips = {}, checkpoints = {}, resumes = {}, notes = {} }
end

-- Drops what a resumed run does again: all events of `cycle` and later ones.
local function cut_back(run, cycle)
    local n = #run.cycles
    while n > 0 and run.cycles[n] >= cycle do
        run.cycles[n], run.rows[n] = nil, nil
        for _, column in ordered.each(run.columns) do column[n] = nil end
        n = n - 1
    end
    for _, name in ipairs { "evals", "skips", "checkpoints" } do
        run[name] = ordered.collect(run[name], function(event) return event.cycle < cycle and event or nil end)
    end
end

-- A column for updates of which the first n have no such figure.
local function new_column(run, name, n)
    local column = {}
    for i = 1, n do column[i] = false end
    run.columns[name] = column
    return column
end

-- Goes on behind the checkpoint of a resumed start, at its first update.
local function resume(run, cycle)
    cut_back(run, cycle)
    run.resumes[#run.resumes + 1] = { cycle = cycle - 1, from = run.resumed_from }
    run.resumed_from = nil
end

-- Adds an update: its numbers as floats, or false, in the order of the names. Returns the reason if it is none.
local function add_update(run, names, cycle, rows, values)
    if run.resumed_from then resume(run, cycle) end
    local n = #run.cycles
    local before = n > 0 and run.cycles[n] or 0
    if n > 0 and cycle <= before then return "has a cycle that is not behind the one before" end
    if run.names ~= names then
        run.names, run.in_order = names, ordered.collect(names, function(name)
            return run.columns[name] or new_column(run, name, n)
        end)
    end
    -- cycles between two lines of the log have as many rows as the later one
    run.rows[n + 1] = (n > 0 and run.rows[n] or 0) + rows * (cycle - before)
    run.cycles[n + 1] = cycle
    local columns = run.in_order
    for i = 1, #columns do columns[i][n + 1] = values[i] end
    local skipped = run.columns.skipped
    if skipped and skipped[n + 1] and skipped[n + 1] > (n > 0 and skipped[n] or 0) then
        run.skips[#run.skips + 1] = { cycle = cycle }
    end
end

local EVENTS = {}

function EVENTS.start(run, event)
    if event.resumed_from then run.resumed_from = tostring(event.resumed_from) end
    run.start = event
end

function EVENTS.update(run, event)
    local names = ordered.collect(ordered.keys(event), function(name) return not COUNTERS[name] and name or nil end)
    return add_update(run, names, event.cycle, math.type(event.rows) and event.rows >= 0 and event.rows or 0,
        ordered.collect(names, function(name) return number_of(event[name]) end))
end

-- The logged rows up to a cycle, or nil before the first update.
local function rows_at(run, cycle)
    local low, high = 0, #run.cycles
    while low < high do
        local middle = (low + high + 1) // 2
        if run.cycles[middle] <= cycle then low = middle else high = middle - 1 end
    end
    return run.rows[low]
end

function EVENTS.eval(run, event)
    local found = { cycle = event.cycle, rows = rows_at(run, event.cycle) or 0, split = tostring(event.split),
        values = {} }
    for name, value in ordered.each(event) do
        local number = not NO_METRIC[name] and number_of(value)
        if number then found.values[name] = number end
    end
    run.evals[#run.evals + 1] = found
end

function EVENTS.checkpoint(run, event)
    run.checkpoints[#run.checkpoints + 1] = { cycle = event.cycle, path = tostring(event.path) }
end

EVENTS["end"] = function(run, event) run.finish = event end

function EVENTS.device(run, event) run.device = event end

-- Columns that some updates lack are as long as the others.
local function complete(run)
    for _, column in ordered.each(run.columns) do
        for i = 1, #run.cycles do
            if column[i] == nil then column[i] = false end
        end
    end
end

-- Captures of a pattern at most.
local MOST_CAPTURES = 32

-- A reader of lines that are written as `line` is, the text of an update: read(run, line) adds one, and returns whether
-- the line is so, and the reason if it is left out. A log has many of them, and a reader of all JSON takes much longer.
-- The cycle and the figures are captured; other counters are only passed.
local function reader_like(line, event)
    local names, pattern, figures, cycle, rows = 0, {}, {}, nil, nil
    for name in line:gmatch '[{,]"([%w_]+)":' do
        local captured = name == "cycle" or not COUNTERS[name]
        names = names + 1
        pattern[names] = name == "event" and '"event":"update"'
            or ('"%s":%s'):format(name, captured and "([^,}]+)" or "[^,}]+")
        if captured then figures[#figures + 1] = name end
        cycle, rows = name == "cycle" and #figures or cycle, name == "rows" and #figures or rows
    end
    if #figures > MOST_CAPTURES or names ~= #ordered.keys(event) or not (cycle and rows) then
        return function() return false end
    end
    local whole = "^{" .. table.concat(pattern, ",") .. "}$"
    table.remove(figures, cycle)
    rows = rows > cycle and rows - 1 or rows
    return function(run, other)
        local values = { other:match(whole) }
        if not values[1] then return false end
        local at, n = math.tointeger(tonumber(table.remove(values, cycle))), tonumber(values[rows])
        if not log_lines.is_cycle(at) or not n or n < 0 then return false end
        for i = 1, #figures do
            local word = values[i]
            local value = tonumber(word) or SPECIAL[word:match '^"(.*)"$']
            if not value then return false end
            values[i] = value + 0.0
        end
        return true, add_update(run, figures, at, n, values)
    end
end

-- Notes of a file: lines that are left out, by their reasons.
local function note_of(wrong)
    return ordered.collect(wrong.keys, function(reason)
        local found = wrong:get(reason)
        local more = found.count > 1 and (" and %d more of that kind"):format(found.count - 1) or ""
        return ("line %d %s: left out%s"):format(found.line, reason, more)
    end)
end

local function add_wrong(wrong, line, reason)
    local found = wrong:get(reason) or wrong:set(reason, { line = line, count = 0 })
    found.count = found.count + 1
end

-- The notes for a reader about the version of the log's program.
local function note_version(run)
    local version = run.start.version
    if version ~= nil and version ~= host.version then
        run.notes[#run.notes + 1] = ("written by version %s of gagen, read by %s: fields that this one does not know "
            .. "are left out"):format(tostring(version), host.version)
    end
end

-- The events of a text: a list of runs, and the lines left out.
local function runs_of(path, text)
    local list, run, wrong, quick = {}, nil, ordered.map(), nil
    -- Adds the event of a line; returns the reason if it is left out.
    local function add(line, whole)
        local done, reason = false, nil
        if quick and run then done, reason = quick(run, line) end
        if done then return reason end
        local event
        event, reason = log_lines.event(line)
        if not event then return whole and reason or "ends in its middle" end
        local fresh = event.event == "start" and not event.resumed_from
        if not run or fresh and #run.cycles + #run.evals > 0 then
            run = new_run(path)
            list[#list + 1] = run
        end
        if event.event == "update" then quick = quick or reader_like(line, event) end
        local handle = EVENTS[event.event]
        return handle and handle(run, event)
    end
    log_lines.each(text, function(number, line, whole)
        local reason = add(line, whole)
        if reason then add_wrong(wrong, number, reason) end
    end)
    return list, wrong
end

--- The runs in a log, one for each start that is not resumed: { path, start = the last start event, cycles and rows =
--- of each update, as counted from the beginning of training; columns = numbers of each update by name, false where the
--- update has none; evals = { cycle, rows, split, values by name }, skips = { cycle }, checkpoints = { cycle, path },
--- resumes = { cycle, from }, finish = the end event or nil, device = its event or nil, notes = sentences }. A file
--- without any event is refused.
function log.read(path)
    local list, wrong = runs_of(path, log_lines.read(path))
    if #list == 0 then
        diag.fail(path, "no line is an event, expected the log of a run", { notes = {
            "docs/LOG.md has the events; a run keeps them in out/NAME/runs/RUN/log.jsonl" } })
    end
    for _, run in ipairs(list) do
        complete(run)
        note_version(run)
    end
    local last = list[#list].notes
    table.move(note_of(wrong), 1, wrong:size(), #last + 1, last)
    return list
end

return log
