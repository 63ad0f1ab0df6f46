-- export: `gagen export RUN`: a run's log or model in the format of another program.
local diag = require "base.diag"
local log = require "command.export.log"
local ordered = require "base.ordered"
local runs = require "command.runs"
local written = require "command.written"

local export = {}

local FORMATS = ordered.map()

FORMATS:set("--csv", function(o, folder)
    local table_of = require "command.export.csv"
    local text = table_of(log.events(folder))
    if not o.arguments[2] then
        io.write(text)
        return nil
    end
    written(o.arguments[2], text, { folder .. "/log.jsonl" })
    return diag.escape(o.arguments[2])
end)

-- The name is that of the run's start: another export of the run replaces the file, and curves of several runs in one
-- folder do not.
FORMATS:set("--tensorboard", function(o, folder)
    local bytes_of = require "command.export.tensorboard"
    local start = runs.started(folder)
    local bytes = bytes_of(log.events(folder), start)
    local made, message = host.folder(o.tensorboard)
    if not made then diag.fail(o.tensorboard, message, { kind = "environment" }) end
    local path = ("%s/events.out.tfevents.%010d.gagen"):format(o.tensorboard, start)
    written(path, bytes)
    return diag.escape(path)
end)

-- The model of the run, with the checkpoint that --checkpoint names.
local function model_of(o, folder) return require "command.export.model".open(folder, o.checkpoint) end

FORMATS:set("--hf", function(o, folder)
    local write = require "command.export.hf"
    return write(model_of(o, folder), o.hf, o.vocab)
end)

FORMATS:set("--onnx", function(o, folder)
    local write = require "command.export.onnx"
    return write(model_of(o, folder), o.onnx)
end)

FORMATS:set("--gguf", function(o, folder)
    local write = require "command.export.gguf"
    return write(model_of(o, folder), o.gguf, o.precision or "f32", o.vocab)
end)

-- The formats that options belong to.
local BELONGS = { ["--checkpoint"] = { "--hf", "--onnx", "--gguf" }, ["--vocab"] = { "--hf", "--gguf" },
    ["--precision"] = { "--gguf" } }

local function check_others(o, format)
    for name, formats in ordered.each(BELONGS) do
        if o.given:has(name) and not ordered.find(formats, format) then
            diag.fail("export", ("%s: %s takes none, but %s"):format(name, format, table.concat(formats, ", ")), {})
        end
    end
    if o.precision and o.precision ~= "f32" and o.precision ~= "f16" then
        diag.fail("export", ("--precision: '%s', expected f32 or f16"):format(o.precision), {})
    end
end

-- The option that says the format.
local function format_of(o)
    local given = ordered.collect(FORMATS.keys, function(name) return o.given:has(name) and name or nil end)
    if #given ~= 1 then
        diag.fail("export", ("%s, expected one of %s"):format(#given == 0 and "no format"
            or table.concat(given, " and ") .. " are given", table.concat(FORMATS.keys, ", ")), {})
    end
    if o.arguments[2] and given[1] ~= "--csv" then
        diag.fail("export", ("unexpected word '%s': only --csv takes a FILE behind it"):format(o.arguments[2]), {})
    end
    check_others(o, given[1])
    return given[1]
end

-- The folder of the run: `path` itself, or that of the newest run of the program in the folder `path`.
local function run_folder(path)
    local folder = runs.folder(#path > 1 and path:gsub("/+$", "") or path, "run.json")
    if folder then return folder end
    diag.fail(path, "no run: expected the folder of a run, such as out/NAME/runs/001, or of a program that has one",
        { notes = { "gagen ls lists the runs" } })
end

--- Runs the command; o: its options, o.arguments = { RUN, FILE of --csv or nil }.
function export.run(o)
    local format = format_of(o)
    local said = FORMATS:get(format)(o, run_folder(o.arguments[1]))
    if said then io.stderr:write("wrote ", said, "\n") end
end

return export
