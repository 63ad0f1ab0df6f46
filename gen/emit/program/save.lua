-- save: the text of save.c: what a checkpoint holds, how it is written and read, and the dump of everything.
local chunks = require "emit.boundary.chunks"
local expr = require "base.expr"
local gradients = require "emit.program.gradients"
local grouped_files = require "emit.boundary.grouped_files"
local memory = require "emit.program.memory"
local ordered = require "base.ordered"
local outliers = require "emit.boundary.outliers"
local rate = require "emit.boundary.rate"
local scaler = require "emit.boundary.scaler"
local sections = require "emit.program.sections"
local states = require "emit.boundary.states"
local text = require "base.text"
local update = require "emit.boundary.update"

local save = {}
local lines = sections.lines

-- Parameters for which a cycle collects something.
local function collected_of(g) return ordered.collect(g.params, function(p) return p.collected end) end

-- The array of the gradient, of which a rank may have only its own part.
local function gradient_of(g)
    return text.block(("a->gradient[0] = (ga_array){PARAMS, TRAINED_PARAMS, \"\", %s, m->flat_g, %s, NULL};"):format(
        gradients.dtype(g).text, g.sharded.gradients and "&m->division.own" or "NULL"))
end

-- The array of what a cycle collects: it lies behind the gradients, or beside their windows.
local function collected_array(g)
    local count = #collected_of(g)
    if count == 0 then return text.block("") end
    local place = g.sharded.gradients and "COLLECTED_PARAMS, %d, \"%s\", REAL, m->collected, NULL, NULL"
        or "PARAMS + TRAINED_PARAMS, %d, \"%s\", REAL, m->flat_g, NULL, NULL"
    return text.block("(ga_array){" .. place:format(count, g.ranks and ".sum" or "") .. "}")
end

--- How many arrays of gradients a save inside a cycle has.
function save.gradient_arrays(g) return 1 + (g.residues and 1 or 0) + (#collected_of(g) > 0 and 1 or 0) end

-- The numbers beside the arrays that a run keeps from update to update.
local function numbers_of(config, updates)
    local list = update.numbers(updates)
    for _, more in ipairs { rate.numbers(config), outliers.numbers(config) } do
        table.move(more, 1, #more, #list + 1, list)
    end
    return list
end

--- How these numbers start.
function save.numbers_started(config, updates)
    return lines(ordered.collect(numbers_of(config, updates), function(number)
        local initial = number.initial
        return ("m->step.%s = %s;"):format(number.field, type(initial) == "string" and initial
            or expr.literal(initial, "f64"))
    end))
end

-- How they go to a checkpoint, and how they come back; behind what the target saves of the program.
local function number_lines(g, config, updates, target)
    local saved, loaded, more = {}, {}, target.saved and target.saved(g)
    for i, number in ipairs(numbers_of(config, updates)) do
        local field = "m->step." .. number.field
        saved[i] = ("s.numbers[%d] = (ga_ckpt_number){%s, %s};"):format(i - 1, text.string(number.field).text, field)
        loaded[i] = ("%s = s.numbers[%d].value;"):format(field, i - 1)
    end
    if #saved > 0 then table.insert(saved, 1, ("s.number_count = %d;"):format(#saved)) end
    if more then table.insert(saved, 1, more) end
    return lines(saved), lines(loaded)
end

--- save.c.
function save.render(g, config, facts, context, updates, header)
    local name, own, scale = text.ident(config.name), context.target.model(config, facts), scaler.lines(config)
    local windows, saved, loaded = g.sharded.gradients or false, number_lines(g, config, updates, context.target)
    return sections.render(context.template("program/save.c"), {
        { "head", { header = text.block(header("save.c",
            "checkpoints, and the dump of everything; part of model.c")) } },
        { "config", { name = name, parameters = chunks.saved_lines(g), saved = chunks.saved(g, "a->"),
            gradient = gradient_of(g), residues = g.residues, collected = collected_array(g),
            gradients = save.gradient_arrays(g), states = lines(states.saved(g)),
            files = g.handlers and select(2, grouped_files.counts(g, memory.params(g))) or 0,
            grouped = g.handlers and grouped_files.saved(g, memory.params(g)) or text.block(""),
            overflows = scale.overflows,
            keep_best = text.ident(tostring(config.best ~= nil and config.best.kept)) } },
        g.state_file ~= nil and g.states:has "ema" and { "averages", { index = ordered.find(g.state_names, "ema") - 1,
            index_of = text.block(g.sharded.parameters and "h.at" or "ga_layout_index(p, l, h.i)") } },
        { "state", { scale_saved = scale.scale_saved, target = text.ident(context.target.name),
            numbers_saved = saved, best = config.best ~= nil } },
        { "load", { name = name, numbers_loaded = loaded, scale_loaded = scale.scale_loaded,
            best = config.best ~= nil } },
        windows and not own.device and { "arrive", {} },
        { "save", { name = name, device = own.device, windows = windows, ranks = g.ranks } },
        not own.device and { "save_to", { name = name, windows = windows } },
        { "dump", { name = name, parameters = chunks.saved(g, "m->saved."), device = own.device,
            windows = windows, ranks = g.ranks, grouped = #config.rank_groups > 0,
            in_place = g.sharded.state and not g.sharded.gradients, elements = text.block(g.sharded.gradients
                and "m->division.own.elements" or "SUMMED"), scaled = scale.scaled,
            scale = scale.scale, last_scale = scale.last_scale } },
    })
end

return save
