-- report: `gagen report`: one page of HTML about a spec, a program or runs.
local compile = require "command.compile"
local diag = require "base.diag"
local options = require "command.options"
local page = require "report.page"
local program = require "emit.program.program"
local run_paths = require "command.run_paths"
local runs = require "command.runs"
local text = require "base.text"
local written = require "command.written"

local report = {}

local MOST_RUNS = 8             -- the newest ones of a program

local function read_json(path)
    local content = host.exists(path) == "file" and host.read(path)
    local value = content and host.parse_json(content)
    return type(value) == "table" and value or nil
end

-- A text of C between quotes, as text.string() writes it.
local function unquoted(word)
    return (word:gsub("\\(%d%d%d)", function(digits) return string.char(tonumber(digits, 8)) end))
end

-- The program in a folder: { folder, facts, profile, command, spec_sha256 }.
local function program_in(folder)
    local facts = read_json(folder .. "/plan.json")
    if not facts or facts.format ~= 1 or type(facts.totals) ~= "table" or type(facts.kernels) ~= "table" then
        diag.fail(folder, "no program of gagen: plan.json is missing or cannot be read", {})
    end
    local model = host.exists(folder .. "/model.c") == "file" and host.read(folder .. "/model.c") or ""
    local profile = read_json(folder .. "/profile.json")
    local same = profile and profile.format == 1
        and profile.plan_sha256 == host.sha256(host.read(folder .. "/plan.json")) and (profile.cycles or 0) > 0
    return { folder = folder, facts = facts, profile = same and profile or nil,
        command = unquoted(model:match '#define SPEC_COMMAND "([^"\n]*)"' or ""),
        spec_sha256 = model:match '#define SPEC_SHA256 "(%x+)"' }
end

-- A folder relative to the present one, if it lies in it.
local function short_path(folder)
    local here = host.absolute "." .. "/"
    return folder:sub(1, #here) == here and folder:sub(#here + 1) or folder
end

-- Three commands that make the run once more; without one, that train the program.
local function commands_of(known, run)
    local settings = run and run.record.settings or {}
    local made = type(settings.program) == "string" and settings.program or known.command
    local own = run and run.program or known.folder
    local folder = own and short_path(host.absolute(own)) or "out/" .. (known.facts and known.facts.name or "NAME")
    local several = known.facts and known.facts.ranks > 1
    local words = { several and "sh " .. text.shell_word(folder .. "/run.sh") or text.shell_word(folder .. "/train") }
    local command = run and type(run.record.facts.command) == "table" and run.record.facts.command or {}
    for i = 2, #command do
        local is_name = command[i - 1] == "--run" or command[i] == "--run"
        if not is_name then words[#words + 1] = text.shell_word(tostring(command[i])) end
    end
    return { made ~= "" and ("%s -o %s"):format(made, text.shell_word(folder)) or "gagen SPEC -o " .. text.shell_word(
        folder), "make -C " .. text.shell_word(folder), table.concat(words, " ") }
end

-- Reads the words of the command line: the first program among them, and all runs.
local function read(o)
    local known, list, has_spec = nil, {}, false
    local function add_program(folder)
        known = known or program_in(folder)
        local own = runs.folders(folder, "log.jsonl")
        for i = math.max(#own - MOST_RUNS + 1, 1), #own do list[#list + 1] = own[i] end
    end
    for _, path in ipairs(o.arguments) do
        if path:find "%.lua$" and host.exists(path) == "file" then
            if known then diag.fail(path, "a second spec or program, expected one", {}) end
            has_spec = true
            local g, c = compile(path, o)
            local _, facts = program.render(g, c)
            known = { facts = facts, command = c.shown_command, spec_sha256 = c.sha256 }
        elseif host.exists(path .. "/plan.json") == "file" then
            add_program(path)
        else
            list[#list + 1] = path
        end
    end
    if not has_spec then options.check_without_spec(o) end
    return known, run_paths.read(list)
end

-- Whether the plan shown is that of the run; nil: unknown.
local function is_of(known, run)
    if not known or not known.spec_sha256 or not run.start.spec_sha256 then return nil end
    return run.start.spec_sha256 == known.spec_sha256
end

local function write(path, content)
    if host.exists(path) == "file" and not (host.read(path) or ""):find("<footer>Made by gagen ", 1, true) then
        diag.fail(path, "is there already and no report of gagen: --html names another file", {})
    end
    written(path, content)
end

--- The command.
function report.run(o)
    local known, list = read(o)
    for _, run in ipairs(list) do
        run.record = run_paths.record(run)
        known = known or run.program and program_in(run.program)
    end
    for _, run in ipairs(list) do run.same_program = is_of(known, run) end
    known = known or { command = "" }
    local name = known.facts and known.facts.name or list[1].start.program or list[1].label
    local about = known.facts and ("%s, %s, profile %s, %d rank%s"):format(known.facts.target, known.facts.precision,
        known.facts.profile, known.facts.ranks, known.facts.ranks > 1 and "s" or "") or "a log without its program"
    local path = o.html or "report.html"
    write(path, page.render { title = tostring(name), about = ("%s; %d run%s"):format(about, #list,
        #list == 1 and "" or "s"), facts = known.facts, runs = list, profile = known.profile,
        again = commands_of(known, list[#list]) })
    io.stderr:write(("wrote %s\n"):format(diag.escape(path)))
end

return report
