-- program: the list of files of an emitted program and their header. Output depends on spec, options,
-- profile and version alone.
local boundary = require "emit.boundary.boundary"
local data = require "emit.program.data"
local graph = require "graph.graph"
local kernels = require "emit.kernels.kernels"
local launch = require "emit.program.launch"
local library = require "emit.program.library"
local main = require "emit.program.main"
local memory = require "emit.program.memory"
local model = require "emit.program.model"
local model_header = require "emit.program.header"
local names = require "emit.program.names"
local one_row = require "emit.program.one_row"
local ordered = require "base.ordered"
local plan = require "emit.program.plan"
local predictions = require "emit.program.predictions"
local predictor = require "emit.program.predictor"
local probe = require "emit.program.probe"
local profile = require "emit.program.profile"
local sample = require "emit.program.sample"
local save = require "emit.program.save"
local ranges = require "emit.boundary.ranges"
local runtime = require "emit.program.runtime"
local sections = require "emit.program.sections"
local state_file = require "emit.boundary.state_file"
local states = require "emit.boundary.states"
local step = require "emit.program.step"
local targets = require "emit.targets.targets"
local template = require "base.template"
local text = require "base.text"
local watch = require "emit.program.watch"

local program = {}

local function template_of(name) return (template.embedded("templates/" .. name)) end

-- First lines of every emitted file: what, from what, how to get it again, whose it is.
local function header_of(config, facts, open, middle, close)
    return function(file, what)
        local rows = {
            ("%s: %s"):format(file, what),
            ("From %s (sha256 %s...) by gagen %s: %s"):format(config.shown_path,
                config.sha256:sub(1, 12), host.version, config.shown_command),
            ("%d parameters, %d bytes planned, 0 allocations after start."):format(
                facts.totals.parameters, facts.totals.bytes),
            profile.shown(config),
            "Edit freely: cc, make and the libraries of the Makefile rebuild it. SPDX-License-Identifier: 0BSD",
        }
        local out = {}
        for i, row in ipairs(rows) do
            out[i] = (i == 1 and open or middle) .. text.comment(row).text
        end
        return table.concat(out, "\n") .. close .. "\n"
    end
end

-- The program's own files that others include.
local INCLUDES_OTHERS = { "main.c", "model.c", "step.c", "probes.c", "example.c", "predict.c", "train_watch.c",
    "compared.c" }

local function included(files)
    return text.block(table.concat(ordered.collect(files.keys, function(name)
        return name:find("^[%w_]+%.cu?$") and not ordered.find(INCLUDES_OTHERS, name) and name or nil
    end), " "))
end

local function render_makefile(config, facts, context, files, header)
    local sources = ordered.collect(runtime.sources(config, context.target), function(name)
        return "runtime/" .. name .. ".c"
    end)
    return context.template("program/Makefile")("makefile", ordered.copy(context.target.makefile(config), {
        files = included(files), header = text.block(header("Makefile", "builds train")),
        predicts = facts.predict ~= nil, watched = watch.possible(config, context.target),
        comm = text.ident(runtime.engine(config, context.target)), ranks = config.mode.ranks or false,
        name = text.ident(config.name), flags = text.block(table.concat(config.compiler_flags, " ")),
        sources = text.block(table.concat(sources, " \\\n    ")),
    })).text
end

local function render_readme(g, config, facts, context)
    local rows = ordered.collect(memory.params(g), function(p)
        local whole = p.region and p.region.whole
        local layers = whole and (", N = %d to %d"):format(p.first, p.first + p.count - 1)
            or p.count > 1 and ", N < " .. p.count or ""
        return ("| `%s`%s | %s |"):format((p.name:gsub("%%d", "N")), layers, graph.shape_text(p.shape))
    end)
    local cycle = facts.cycle
    return context.template("program/README.md")("readme", ordered.copy(context.target.main(config), {
        name = text.ident(config.name), spec = text.comment(config.shown_path),
        command = text.comment(config.shown_command), version = text.comment(host.version),
        totals = facts.totals,
        cycle = text.comment(("%d micro-steps of %d rows"):format(cycle.accumulate, cycle.rows)),
        table = sections.lines(rows), ranks = config.mode.ranks, predicts = facts.predict ~= nil,
    })).text
end

-- Provenance names the spec as it is shown, so that no file says where gagen was run.
local function show_places(g, config)
    local function shown(at)
        if at:sub(1, #config.path) ~= config.path then return at end      -- given by --set
        return config.shown_path .. at:sub(#config.path + 1)
    end
    for _, body in ipairs { g.forward, g.evaluation, g.backward, g.boundary, g.views } do
        graph.walk(body, function(node) node.at = shown(node.at) end)
    end
    config.optimizer.at, config.schedule.at = shown(config.optimizer.at), shown(config.schedule.at)
end

-- The kernels of a program and the plan's facts.
local function planned(g, config)
    local target = targets.of(config)
    state_file.check(g, config, target)
    if target.runs and not target.device and sample.possible(g, config) then
        one_row.add(g, sample.source(g), config.ops)
    end
    local distances, loops = names.set(g)
    local context = { ops = config.ops, real = g.real, half = g.half, template = template_of, names = {}, helpers = {},
        functions = kernels.functions(),
        profile = profile.get(config.profile), slices = profile.slices(config), arch = config.arch,
        added = target.added and target.added(g, config.ops),
        target = target, distances = distances, loops = loops, ranges = ranges.rows(g, states.exchanged(g, target)),
        embedded = function(name) return host.embedded("templates/" .. name) end }
    local all = step.kernels(g, context)
    local found = boundary.kernels(g, config, context)
    return plan.facts(g, config, all), context, all, found
end

--- The plan's facts of a graph that no program is written of.
function program.plan(g, config) return (planned(g, config)) end

-- predictions.c, and the program that only predicts.
local function add_predictor(g, config, facts, context, header, files)
    local own = predictor.plan(g, config)
    if own then predictor.lower(own, config, context) end
    facts.predict = own and predictor.facts(own) or nil
    files:set("predictions.c", predictions.render(g, config, context,
        own and not g.sharded.parameters and predictor.saving(own, config, context.target), header))
    if own then predictor.render(own, config, context, header, files) end
end

--- All files of the program as an ordered map from name to text, and the plan's facts.
function program.render(g, config)
    show_places(g, config)
    local facts, context, all, found = planned(g, config)
    local target = context.target
    context.kernels = target.kernels(g, config, context, found)
    if g.one_row then one_row.kernels(g, context) end
    local header = header_of(config, facts, "/* ", " * ", " */")
    local files = ordered.map()
    if not target.runs then
        target.render(g, config, context, all, found, header, files)
        return files, facts
    end
    files:set("model.h", model_header.render(g, config, facts, context, found.updates, header))
    target.render(g, config, context, all, found, header, files)
    probe.render(g, config, context, target.calls(all, found, context), header, files)
    files:set("memory.c", memory.render(g, config, facts, context, header))
    files:set("rows.c", data.rows(config, context, header))
    files:set("data.c", data.render(config, context, header))
    files:set("save.c", save.render(g, config, facts, context, found.updates, header))
    files:set("model.c", model.render(g, config, facts, context, found.updates, header))
    files:set("main.c", main.render(g, config, context, header))
    library.render(g, config, context, header, files)
    sample.render(g, config, context, header, files)
    add_predictor(g, config, facts, context, header, files)
    local script_header = header_of(config, facts, "# ", "# ", "")
    files:set("Makefile", render_makefile(config, facts, context, files, script_header))
    launch.render(config, context, script_header, files)
    files:set("README.md", render_readme(g, config, facts, context))
    files:set("plan.json", host.json(facts) .. "\n")
    files:set("spec.lua", config.text)
    runtime.add(config, target, files)
    library.check_names(config, files)
    return files, facts
end

return program
