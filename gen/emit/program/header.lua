-- header: the text of model.h: sizes, memory and functions of the program.
local batch = require "emit.program.batch"
local c_text = require "emit.targets.c_text"
local chunks = require "emit.boundary.chunks"
local clip = require "emit.boundary.clip"
local data = require "emit.program.data"
local division = require "emit.boundary.division"
local gradients = require "emit.program.gradients"
local grouped_files = require "emit.boundary.grouped_files"
local graph = require "graph.graph"
local memory = require "emit.program.memory"
local names = require "emit.program.names"
local metrics = require "spec.metrics"
local ordered = require "base.ordered"
local outliers = require "emit.boundary.outliers"
local placed = require "emit.boundary.placed"
local ranges = require "emit.boundary.ranges"
local rate = require "emit.boundary.rate"
local sample = require "emit.program.sample"
local save = require "emit.program.save"
local scaler = require "emit.boundary.scaler"
local sections = require "emit.program.sections"
local sent = require "emit.boundary.sent"
local state_file = require "emit.boundary.state_file"
local states = require "emit.boundary.states"
local step = require "emit.program.step"
local text = require "base.text"
local update = require "emit.boundary.update"
local windows = require "emit.boundary.windows"

local model_header = {}
local lines = sections.lines

local function shape_comment(shape, count)
    if count > 1 then shape = { count, table.unpack(shape) } end
    return graph.shape_text(shape)
end

local function pad(s, width) return s .. (" "):rep(width - #s) end

-- "real *fc1_weight;   /* (64, 64) */" for each tensor.
local function fields(tensors, target)
    local width, list = 0, {}
    for _, t in ipairs(tensors) do width = math.max(width, #c_text.field(t)) end
    for i, t in ipairs(tensors) do
        local count = t.scope and t.place.slots or 1
        list[i] = ("%s /* %s */"):format(target.field(t, pad(c_text.field(t) .. ";", width + 1)),
            shape_comment(t.shape, count))
    end
    return lines(list)
end

local function size_lines(g, config, context)
    local list = {
        ("B = %d, /* rows of a micro-batch */"):format(config.batch),
        ("A = %d, /* micro-steps of a cycle */"):format(g.accumulate),
    }
    for _, loop in ipairs(context.loops) do
        list[#list + 1] = ("%s = %d, /* of %s */"):format(loop[1], loop[2], loop[3])
    end
    local more = {
        ("FLAT = %d, /* elements of the flat space */"):format(g.flat_elements),
        ("TRAINED = %d, /* of which trained */"):format(g.trained_elements),
        ("SUMMED = %d, /* of which trained or collected over a cycle */"):format(g.summed_elements),
        ("PARAM_COUNT = %d, TRAINED_PARAMS = %d, STATES = %d,"):format(#g.params,
            #ordered.collect(g.params, function(p) return p.used or nil end), #g.state_names),
        ("NORM_TILE = %d, NORM_TILES = %d,"):format(clip.TILE, g.norm.tiles),
        ("IGNORE = %d, /* a target that does not count */"):format(config.loss.fields.ignore or -100),
        ("DATA_FILES = %d,"):format(data.file_count(config)),
    }
    for _, part in ipairs { more, batch.sizes(g), context.target.sizes(config, context) } do
        table.move(part, 1, #part, #list + 1, list)
    end
    return lines(list)
end

-- One enum constant per arena, in the order of the plan.
local function arena_names(facts)
    local names = ordered.collect(facts.arenas, function(a)
        return a.memory ~= "device" and "ARENA_" .. a.name:upper() or nil
    end)
    return text.block(table.concat(names, ",\n") .. ",\nARENAS")
end

-- Fields of the struct step of the C target that depend on the optimizer and the schedule.
local function step_fields(g, config, updates)
    local list = ordered.collect(division.step_rows(g, config), function(row)
        return ("%s %s; /* %s */"):format(row[1] == "integer" and "int64_t" or row[1], row[2], row[3])
    end)
    for _, fields in ipairs { rate.fields(config), outliers.fields(config) } do
        for _, field in ipairs(fields) do list[#list + 1] = ("double %s; /* %s */"):format(field[1], field[2]) end
    end
    for _, row in ipairs(scaler.rows(config)) do
        list[#list + 1] = ("%s %s; /* %s */"):format(row[1] == "integer" and "int64_t" or row[1], row[2], row[3])
    end
    local own = update.scalars(updates, g.layer_rates).fields
    return table.move(own, 1, #own, #list + 1, list)
end

-- The update's block: what decide() computes, on the device or on the host.
local function step_section(g, config, updates, own)
    local names, small = text.block(step.sums(config)), division.small(g, config)
    if own.device then
        return { "device_step", { sum_names = names, small = small, step_fields = own.step_fields } }
    end
    return { "step", { sum_names = names, small = small, times = text.comment(scaler.times(config)),
        grad_norm = text.comment(clip.norm_text(config)), rewrites = clip.writes(config),
        weights_first = clip.weights_first(g, config),
        over = text.comment(scaler.over(config)), factor = text.block((clip.factor_field(g, config))),
        groups = lines(step_fields(g, config, updates)) } }
end

-- Where the gradients of a cycle are summed, and those of a micro-step if they lie elsewhere.
local function gradient_fields(g, device)
    if not g.sharded.gradients then
        return lines { ("%s *flat_g;            /* and of gradients: SUMMED elements */"):format(
            g.half_sums and "bf16" or "real") }
    end
    local address = device and "ga_address " or "real *"
    local list = { "real *flat_g;            /* and of this rank's part of the gradients, division.own */",
        address .. "windows; /* gradients of a micro-step, until they are exchanged */" }
    if g.summed_elements > g.trained_elements then
        list[3] = "real *collected; /* what a cycle collects for running statistics: SUMMED - TRAINED elements */"
        if device then list[4] = "ga_address device_collected;" end
    end
    return lines(list)
end

local function model_section(g, config, own, has_views, rows, target)
    local divided, filed = division.fields(g, rows), state_file.fields(g, rows, target)
    table.move(filed, 1, #filed, #divided + 1, divided)
    return { "model", { device = own.device, flat_parameters = chunks.fields(g, own.device),
        flat_gradients = gradient_fields(g, own.device),
        half_sums = g.half_sums, residues = g.residues, views = has_views,
        by_epoch = config.schedule.fields.by == "epoch", best = config.best ~= nil,
        shift = metrics.adds(config, "shift"),
        state_fields = lines(states.fields(g)), divided = lines(divided),
        own = own.device_fields } }
end

local function function_section(g, config, own, row)
    return { "functions", { name = text.ident(config.name), chunked = g.head ~= nil,
        ema = config.optimizer.own.ema ~= nil, device = own.device, ranks = g.ranks,
        plateau = config.schedule.rule.plateau or false, sample = sample.possible(g, config),
        row = row ~= nil, position = row ~= nil and row.position ~= false, filed = g.state_file ~= nil } }
end

--- model.h.
function model_header.render(g, config, facts, context, updates, header)
    local params, target, views = memory.with_joints(g, memory.params(g)), context.target, memory.placed(g, "views")
    local own, sums = context.target.header(g, config, facts, updates), gradients.header(g, context.target, params)
    local values = ordered.collect(params, function(p) return p.value end)
    local f64, arrays, files = g.real == "f64", 0, 2
    if g.handlers then arrays, files = grouped_files.counts(g, memory.params(g)) end
    return sections.render(context.template("program/model.h"), {
        { "head", { header = text.block(header("model.h", "sizes, memory and functions of the program")),
            guard = text.ident(config.name:upper() .. "_MODEL_H"), half = sums.half, device = own.device,
            parallel = own.parallel, placed = placed.is_used(g), sends = sent.is_used(g), filed = g.state_file ~= nil,
            real = text.ident(f64 and "double" or "float"),
            dtype = text.ident(f64 and "GA_F64" or "GA_F32") } },
        own.device and { "iteration", {} },
        { "sizes", { sizes = size_lines(g, config, context), arenas = arena_names(facts) } },
        #context.distances > 0 and { "distances", { lines = names.lines(context.distances) } }, windows.finders(g),
        chunks.finders(g),
        { "ranges", ranges.types(context.ranges, g) },
        own.device and { "device_arenas", { device_arenas = own.device_arenas, graphs = own.graphs } },
        { "parameters", { parameters = fields(values, target) } },
        g.half_sums and { "gradients", { fields = sums.gradient_fields } },
        #views > 0 and { "views", { views = fields(views, target) } },
        { "micro_batch", { activations = fields(memory.placed(g, "activations"), target),
            batch = lines(batch.fields(g, target)) } },
        step_section(g, config, updates, own),
        { "saved", { parameters = text.block(chunks.arrays(g) > 1 and ("parameters[%d]"):format(chunks.arrays(g))
            or "parameters"), gradients = save.gradient_arrays(g), rests = g.state_file and #g.state_file.arrays or 0,
            arrays = arrays, files = files } },
        model_section(g, config, own, #views > 0, context.ranges, target),
        function_section(g, config, own, g.one_row),
    })
end

return model_header
