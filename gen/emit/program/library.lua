-- library: NAME.h and library*.c, the program as a library for a loop of the user's own, and an example.
-- Only some targets have it. backward_by_grad is the backward pass behind the gradient of the output.
local batch = require "emit.program.batch"
local batchnorm = require "spec.batchnorm"
local c_text = require "emit.targets.c_text"
local chunks = require "emit.boundary.chunks"
local diag = require "base.diag"
local expr = require "base.expr"
local gradients = require "emit.program.gradients"
local graph = require "graph.graph"
local measured = require "emit.program.measured"
local metrics = require "spec.metrics"
local ordered = require "base.ordered"
local predictions = require "emit.program.predictions"
local program_name = require "spec.program_name"
local scaler = require "emit.boundary.scaler"
local sections = require "emit.program.sections"
local step = require "emit.program.step"
local text = require "base.text"

local library = {}

local block_of = sections.lines

local TYPE = { f32 = "float", f64 = "double", i32 = "int32_t" }
local BYTES = { f32 = 4, f64 = 8, i32 = 4 }

-- How many things the numbers of a field stand for; 0: it holds no such numbers.
local function things_of(g, config, t)
    if t.dtype ~= "i32" then return 0 end
    return t == g.loss.target and config.classes or t.limit or 0
end

-- { name, where, bytes of a row, things, whether it is the target }.
local function field_rows(g, config)
    local layout = batch.layout(g)
    return ordered.collect(g.inputs, function(t, i)
        local width = graph.elements(t.shape) // t.shape[1]
        return ("{%s, %d, %d, %d, %s},"):format(text.string(t.name).text, layout.at[i],
            width * BYTES[t.dtype], things_of(g, config, t), t.name == "target" and "true" or "false")
    end)
end

-- The nodes behind the one that completes the gradient of the output; nil where that is not a node of
-- its own, or where parameters get gradients before.
local function behind_output(g)
    local last
    for i, node in ipairs(g.backward) do
        for _, out in ipairs(graph.writes(node)) do
            if out.tensor == g.d_output then last = i end
        end
    end
    if not last or not g.d_output.place or g.d_output.scope then return nil end
    for i = 1, last do
        if g.backward[i].op == "times" then return nil end
        for _, out in ipairs(graph.writes(g.backward[i])) do
            if out.tensor.kind == "gradient" then return nil end
        end
    end
    return table.move(g.backward, last + 1, #g.backward, 1, {})
end

local function header_fields(g)
    return ordered.collect(g.inputs, function(t)
        return ("const %s *%s; /* %s */"):format(TYPE[t.dtype], t.name, graph.shape_text(t.shape))
    end)
end

-- The factors of the rate of an optimizer's groups, by their number; those of its rest come behind all others.
local function scales(g)
    local list, count = {}, 0
    for _, group in g.groups:each() do
        list[group.rate_index], count = group.lr_scale, math.max(count, group.rate_index + 1)
    end
    local out = {}
    for i = 1, count do out[i] = expr.literal(list[i - 1] or 1, "f64") end
    return table.concat(out, ", "), count
end

-- How many tensors the parameters are, each iteration of a region apart.
local function tensor_count(g)
    local n = 0
    for _, p in ipairs(g.params) do n = n + p.count end
    return n
end

-- Whether a handler can see gradients: a rank has the whole of each, or gathers it.
local function handles(g) return not g.sharded.gradients end

-- How flush starts the buckets that only the last micro-step of a full cycle starts.
local function late_starts(g)
    if g.sharded.gradients then
        return block_of(ordered.collect(g.collectives, function(x)
            return x.beside and ("bucket_start(w, m, %d, false);"):format(x.bucket - 1) or nil
        end))
    end
    return block_of { #g.collectives > 0
        and ("for (int i = 0; i < %d; i++) bucket_start(w, m, i);"):format(#g.collectives) or nil }
end

-- The sizes of library.c.
local function sizes_text(g)
    local outputs = predictions.is_plain(g) and graph.elements(g.output.shape) or 0
    if g.sharded.parameters then
        local largest = 0
        for _, p in ipairs(g.params) do largest = math.max(largest, p.flat.n) end
        return ("enum { OUTPUT = %d, LARGEST_TENSOR = %d }; /* elements: the model's output, a parameter */")
            :format(outputs, largest)
    end
    if not handles(g) then return ("enum { OUTPUT = %d }; /* elements of the model's output */"):format(outputs) end
    return ("enum { OUTPUT = %d, TENSORS = %d }; /* elements of the model's output; parameters, by layer */"):format(
        outputs, tensor_count(g))
end

-- library.c: the record, opening, closing, ranks.
local function library_text(g, config, context, header)
    local name = text.ident(config.name)
    return sections.render(context.template("program/library.c"), {
        { "head", { header = text.block(header("library.c", config.name .. ".h: the program for a loop of your own")),
            name = name, sizes = text.block(sizes_text(g)), fields = block_of(field_rows(g, config)),
            handles = handles(g), divided = g.sharded.parameters } },
        { "ranks", { name = name, groups = #config.rank_groups > 0,
            last_scale = text.block(scaler.last(config, "s->")) } },
        { "open", { name = name, handles = handles(g), divided = g.sharded.parameters } },
    })
end

local function batch_section(g, name)
    local names = ordered.collect(g.inputs, function(t) return t.name end)
    return { "batch", { name = name, from = text.block("b->" .. table.concat(names, ", b->")),
        full_batches = #batchnorm.nodes(g) > 0 } }
end

-- The micro-batch that `next` hands out.
local function handed(g)
    return text.block(table.concat(ordered.collect(g.inputs, function(t)
        return (".%s = s.%s"):format(t.name, t.name)
    end), ", "))
end

-- backward_by_grad, and what it starts where the gradient of the output is a place of its own.
local function by_grad_sections(g, config, target, name)
    local nodes = g.d_output and predictions.is_plain(g) and behind_output(g)
    if not nodes then return false, { "no_backward_by_grad", { name = name, chunked = g.head ~= nil } } end
    return { "backward_from", { name = name, by_grad = step.backward_lines(g, nodes, target),
        half_gradient = graph.is_half(g.d_output) and text.ident(g.half) or false,
        d_output = text.block(target.pointer(g.d_output)) } },
        { "backward_by_grad", { name = name, scaled = config.scaler ~= nil,
            scale = text.block(scaler.present(config, "p->m.step.")) } }
end

-- The function that sets a handler, and what calls it.
local function handler_section(g, config, name)
    if not handles(g) then
        return { "no_handler", { name = name } }
    end
    return { "handler", { name = name, half_sums = g.half_sums, scattered = g.sharded.state,
        by_sum = config.loss.weight == "sum",
        divisor = text.block(config.scaler and " / " .. scaler.present(config, "m->step.") or ""),
        groups = g.handlers and #config.rank_groups or 0,
        handlers = text.block(table.concat(ordered.collect(g.handlers and g.buckets or {}, function(bucket)
            return tostring((bucket.handler or 0) - 1)
        end), ", ")) } }
end

-- library_steps.c: micro-batches, the boundary, the spec's own data.
local function steps_text(g, config, context, header)
    local name, stops = text.ident(config.name), scaler.stops(config)
    local backward_from, backward_by_grad = by_grad_sections(g, config, context.target, name)
    return sections.render(context.template("program/library_steps.c"), {
        { "head", { header = text.block(header("library_steps.c",
            "micro-batches and the boundary; part of library.c")) } },
        batch_section(g, name), backward_from,
        { "bodies", { name = name, has_by_grad = backward_from ~= false } },
        handles(g) and { "set_handler", { name = name } }, handler_section(g, config, name),
        { "micro", { name = name } }, backward_by_grad,
        { "flush_step", { residues = g.residues, starts = late_starts(g) } },
        stops.stops_at_nonfinite and { "check_finite", { hopeless = stops.hopeless, at_least = stops.at_least } },
        { "boundary", { name = name, stops_at_nonfinite = stops.stops_at_nonfinite, buckets = #g.collectives,
            handles = handles(g) } },
        { "own_data", { name = name, handed = handed(g), stops_at_nonfinite = stops.stops_at_nonfinite,
            handles = handles(g) } },
    })
end

-- The output as the caller gets it, and what predict says where it is never whole.
local function output_sections(g, target, name)
    if not predictions.is_plain(g) then return false, { "no_forward", { name = name, chunked = g.head ~= nil } } end
    return { "copy_output", { type = text.ident(graph.is_half(g.output) and g.half or "real"),
        output = text.block(target.pointer(g.output)), number = text.block(c_text.load(g.output, "output[i]")) } },
        { "forward", { name = name } }
end

-- library_measure.c: losses, outputs and rates, without training.
local function measure_text(g, config, context, header)
    local name, ema = text.ident(config.name), config.optimizer.own.ema ~= nil
    local rule, list, count = config.schedule.rule, scales(g)
    local copy_output, forward = output_sections(g, context.target, name)
    return sections.render(context.template("program/library_measure.c"), {
        { "head", { header = text.block(header("library_measure.c",
            "losses and outputs without training; part of library.c")) } },
        { "settings", { name = name, scales = text.block(list), groups = count } },
        rule.plateau and { "report", { name = name } }
            or { "no_report", { name = name, schedule = text.comment(rule.name) } },
        { "measure_batch", { name = name, shift = metrics.adds(config, "shift") } },
        ema and { "measure_averages", { name = name } },
        copy_output,
        { "validation", { name = name, ema = ema, hits = metrics.adds(config, "hits"),
            f1 = metrics.adds(config, "found"), measured = measured.assignments(config) } },
        forward,
        { "predict", { name = name, averages = ema and copy_output ~= false } },
    })
end

-- library_state.c: parameters and checkpoints.
local function state_text(g, config, context, header)
    local name, divided, ema = text.ident(config.name), g.sharded.parameters, config.optimizer.own.ema ~= nil
    return sections.render(context.template("program/library_state.c"), {
        { "head", { header = text.block(header("library_state.c", "parameters and checkpoints; part of library.c")) } },
        handles(g) and { "describe", { name = name, gradient_dtype = gradients.dtype(g) } },
        ema and { "average", { name = name, index = ordered.find(g.state_names, "ema") - 1 } },
        divided and { "walk_parts", { name = name, first = chunks.first_saved(g, "p->m.saved."),
            arrays = chunks.arrays(g), ema = ema } } or { "walk", { name = name } },
        { "visits", {} },
        divided and { "state_dict_parts", { name = name } }
            or { "state_dict", { name = name, ema = ema } },
        { "checkpoints", { name = name } },
    })
end

-- Arrays for a micro-batch, and lines that fill them with something.
local function example(g, config, context, header)
    local arrays, fills, rows = {}, {}, {}
    for i, t in ipairs(g.inputs) do
        local n = graph.elements(t.shape)
        arrays[i] = ("%s %s[%d]; /* %s */"):format(TYPE[t.dtype], t.name, n,
            graph.shape_text(t.shape))
        local value = ("(%s)((k + i * 7919) %% 101) / 101"):format(TYPE[t.dtype])
        if t.dtype == "i32" then
            value = ("(int32_t)((k + i) %% %d)"):format(math.max(things_of(g, config, t), 1))
        end
        fills[i] = ("for (int64_t i = 0; i < %d; i++) own.%s[i] = %s;"):format(n, t.name, value)
        rows[i] = "own." .. t.name
    end
    rows[#rows + 1] = tostring(config.batch)
    return context.template("program/example.c")("example", {
        header = text.block(header("example.c", "a loop of your own: make example")),
        name = text.ident(config.name), upper = text.ident(config.name:upper()),
        arrays = block_of(arrays), fills = block_of(fills), rows = text.block(table.concat(rows, ", ")),
    }).text
end

--- NAME.h, library.c with its parts and example.c, in a map of files; nothing for a target without.
function library.render(g, config, context, header, files)
    if not context.target.library then return end
    local own = config.name .. ".h"
    if files:has(own) then
        diag.fail(config.path, ("name: '%s': each program has a file %s of its own: choose another name")
            :format(config.name, own), {})
    end
    local name = text.ident(config.name)
    files:set(own, sections.render(context.template("program/library.h"), {
        { "types", { header = text.block(header(own, "the program for a loop of your own: make lib")),
            guard = text.ident(config.name:upper() .. "_H"), name = name, upper = text.ident(config.name:upper()),
            accumulate = g.accumulate, fields = block_of(header_fields(g)), full_batches = #batchnorm.nodes(g) > 0,
            measured = measured.fields(config), formulas = measured.formulas(config) } },
        { "functions", { name = name, half_sums = g.half_sums, scattered = g.sharded.state,
            handles = handles(g), grouped = g.handlers ~= nil,
            collective = text.block(config.sync_batchnorm and " Collective." or "") } },
        { "measures", { name = name, groups = #config.rank_groups > 0, divided = g.sharded.parameters } },
    }))
    files:set("library.c", library_text(g, config, context, header))
    files:set("library_steps.c", steps_text(g, config, context, header))
    files:set("library_measure.c", measure_text(g, config, context, header))
    files:set("library_state.c", state_text(g, config, context, header))
    files:set("example.c", example(g, config, context, header))
end

-- Files that are compiled without the library.
local APART = { "main.c", "predict.c", "example.c", "train_watch.c", "compared.c" }

--- The name that the program's library has and its kernels or others of its functions have too, and the path of the
--- file with the other one; nil: there is none. files: those of the program.
function library.clash(name, files)
    local face = files:get(name .. ".h")
    if not face then return nil end
    face = face .. files:get "model.h"
    for path, page in files:each() do
        local beside = path:find "^[%w_]+%.c$" and not ordered.find(APART, path) or path == "model.h"
            or path:find "^runtime/.*%.h$"
        local clash = beside and program_name.clash(name, face, page)
        if clash then return clash, path end
    end
end

--- Warns of a program whose library would not compile for its name.
function library.check_names(config, files)
    local clash, path = library.clash(config.name, files)
    if not clash then return end
    local complaint = "name: '%s': %s has a %s of its own: the library of the program (make lib) needs another name"
    diag.warn(config.path, complaint:format(config.name, path, clash), {})
end

return library
