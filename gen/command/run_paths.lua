-- run_paths: the runs that words of the command line name: the folder of a run, a file of its log, or the folder of a
-- program, whose newest run it is.
local diag = require "base.diag"
local log = require "report.log"
local ordered = require "base.ordered"
local runs = require "command.runs"

local run_paths = {}

local EXPECTED = "expected the folder of a run, a log or the folder of a program"

-- The folder of the program that a run's folder lies in, PROGRAM/runs/RUN, or nil.
local function program_of(folder)
    local program = host.absolute(folder):match "^(.*)/runs/[^/]+$"
    return program and host.exists(program .. "/plan.json") == "file" and program or nil
end

-- The label of a run: PROGRAM/RUN, or the last part of its path.
local function label_of(path)
    local whole = host.absolute(path):gsub("/log%.jsonl$", "")
    local program, run = whole:match "([^/]+)/runs/([^/]+)$"
    return diag.escape(program and program .. "/" .. run or whole:match "[^/]*$")
end

-- Each run of the log at `path` with its label; folder: of the run, or nil.
local function add_log(list, path, folder)
    local found = log.read(path)
    for i, run in ipairs(found) do
        run.label = label_of(path) .. (#found > 1 and "#" .. i or "")
        run.given, run.folder, run.program = path, folder, folder and program_of(folder)
        list[#list + 1] = run
    end
end

-- The folder of a run, that of the newest run for a program's folder.
local function folder_of(path)
    local folder = runs.folder(path, "log.jsonl")
    if folder then return folder end
    diag.fail(path, host.exists(path .. "/runs") == "folder" and "the program has no run with a log yet: train it first"
        or "the folder has no log.jsonl, " .. EXPECTED, {})
end

-- Labels that are not unique become the paths that were given.
local function make_unique(list)
    local count = {}
    for _, run in ipairs(list) do count[run.label] = (count[run.label] or 0) + 1 end
    for i, run in ipairs(list) do
        if count[run.label] > 1 then run.label = ("%s (%d)"):format(diag.escape(run.given), i) end
    end
    return list
end

--- Appends the runs that `path` names to `list`.
function run_paths.add(list, path)
    local kind = host.exists(path)
    if not kind then diag.fail(path, "there is no such run, " .. EXPECTED, {}) end
    if kind == "folder" then
        local folder = folder_of(path)
        add_log(list, folder .. "/log.jsonl", folder)
    else
        local folder = path:match "^(.*)/log%.jsonl$"
        add_log(list, path, folder and host.exists(folder .. "/run.json") == "file" and folder or nil)
    end
end

--- The runs that the words name, what log.read gives and of each { label, given = path of its log, folder, program },
--- folder and program may be nil.
function run_paths.read(words)
    local list = {}
    for _, path in ipairs(words) do run_paths.add(list, path) end
    return make_unique(list)
end

--- The record in a run's folder: { facts = run.json, settings = those of it, spec = text or nil }, empty where there is
--- none.
function run_paths.record(run)
    if not run.folder then return { facts = {}, settings = {} } end
    local facts = runs.facts(run.folder)
    local path = run.folder .. "/spec.lua"
    return { facts = facts, settings = type(facts.settings) == "table" and facts.settings or {},
        spec = host.exists(path) == "file" and host.read(path) or nil }
end

--- Says on standard error what is to be known of the logs.
function run_paths.say_notes(list)
    for _, run in ipairs(list) do
        for _, note in ipairs(run.notes) do diag.warn(run.given, note) end
    end
end

return run_paths
