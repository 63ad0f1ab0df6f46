-- library: NAME.h and library.c, the program as a library for a loop of the user's own, and an example.
-- Only some targets have it. backward_by_grad is the backward pass behind the gradient of the output.
local batch = require "emit.program.batch"
local batchnorm = require "spec.batchnorm"
local c_text = require "emit.targets.c_text"
local diag = require "base.diag"
local expr = require "base.expr"
local gradients = require "emit.program.gradients"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local scaler = require "emit.boundary.scaler"
local step = require "emit.program.step"
local text = require "base.text"

local library = {}

local function block_of(list) return text.block(table.concat(list, "\n")) end

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

-- What an optimizer's groups multiply the rate with, by their number; those of its rest come behind all others.
local function scales(g)
    local list, count = {}, 0
    for _, group in g.groups:each() do
        list[group.rate_index], count = group.lr_scale, math.max(count, group.rate_index + 1)
    end
    local out = {}
    for i = 1, count do out[i] = expr.literal(list[i - 1] or 1, "f64") end
    return table.concat(out, ", "), count
end

local function has_plain_output(g)
    return g.output ~= nil and g.output.place ~= nil and g.output.place.arena == "activations"
end

local function source(g, config, context, header)
    local target = context.target
    local by_grad = g.d_output and has_plain_output(g) and behind_output(g)
    local names = ordered.collect(g.inputs, function(t) return t.name end)
    local list, count = scales(g)
    local tensors = 0
    for _, p in ipairs(g.params) do tensors = tensors + p.count end
    return context.template("program/library.c")("library", ordered.copy(scaler.stops(config), {
        header = text.block(header("library.c", config.name .. ".h: the program for a loop of your own")),
        name = text.ident(config.name), fields = block_of(field_rows(g, config)),
        sizes = text.block(("OUTPUT = %d, TENSORS = %d"):format(
            has_plain_output(g) and graph.elements(g.output.shape) or 0, tensors)),
        from = text.block("b->" .. table.concat(names, ", b->")),
        handed = text.block(table.concat(ordered.collect(names, function(name)
            return (".%s = s.%s"):format(name, name)
        end), ", ")),
        scales = text.block(list), groups = count,
        by_grad = by_grad and step.backward_lines(g, by_grad, target) or text.block(""),
        f1 = config.measures_f1,
        d_output = text.block(by_grad and target.pointer(g.d_output) or ""), has_by_grad = by_grad and true or false,
        half_gradient = by_grad and graph.is_half(g.d_output) and text.ident(g.half) or false,
        output = text.block(has_plain_output(g) and target.pointer(g.output) or ""),
        output_type = text.ident(has_plain_output(g) and graph.is_half(g.output) and g.half or "real"),
        number = text.block(g.output and c_text.load(g.output, "output[i]") or ""),
        buckets = #g.collectives, residues = g.residues, scaled = config.scaler ~= nil,
        by_sum = config.loss.weight == "sum", half_sums = g.half_sums,
        divisor = text.block(config.scaler and " / " .. scaler.present(config, "m->step.") or ""),
        scale = text.block(scaler.present(config, "p->m.step.")),
        last_scale = text.block(scaler.last(config, "s->")),
        ema = config.optimizer.own.ema ~= nil,
        schedule = text.comment(config.schedule.rule.name), plateau = config.schedule.rule.plateau or false,
        chunked = g.head ~= nil, gradient_dtype = gradients.dtype(g), full_batches = #batchnorm.nodes(g) > 0,
    })).text
end

-- Arrays for a micro-batch, and lines that fill them with something.
local function example(g, config, context, header)
    local arrays, fills, rows = {}, {}, {}
    for i, t in ipairs(g.inputs) do
        local n = graph.elements(t.shape)
        arrays[i] = ("static %s %s[%d]; /* %s */"):format(TYPE[t.dtype], t.name, n,
            graph.shape_text(t.shape))
        local value = ("(%s)((k + i * 7919) %% 101) / 101"):format(TYPE[t.dtype])
        if t.dtype == "i32" then
            value = ("(int32_t)((k + i) %% %d)"):format(math.max(things_of(g, config, t), 1))
        end
        fills[i] = ("for (int64_t i = 0; i < %d; i++) %s[i] = %s;"):format(n, t.name, value)
        rows[i] = t.name
    end
    rows[#rows + 1] = tostring(config.batch)
    return context.template("program/example.c")("example", {
        header = text.block(header("example.c", "a loop of your own: make example")),
        name = text.ident(config.name), upper = text.ident(config.name:upper()),
        arrays = block_of(arrays), fills = block_of(fills), rows = text.block(table.concat(rows, ", ")),
    }).text
end

--- NAME.h, library.c and example.c, in a map of files; nothing for a target without.
function library.render(g, config, context, header, files)
    if not context.target.library then return end
    local own = config.name .. ".h"
    if files:has(own) then
        diag.fail(config.path, ("name: '%s': each program has a file %s of its own: choose another name")
            :format(config.name, own), {})
    end
    local name = text.ident(config.name)
    files:set(own, context.template("program/library.h")("library", { name = name,
        header = text.block(header(own, "the program for a loop of your own: make lib")),
        guard = text.ident(config.name:upper() .. "_H"), upper = text.ident(config.name:upper()),
        accumulate = g.accumulate, fields = block_of(header_fields(g)), half_sums = g.half_sums,
        full_batches = #batchnorm.nodes(g) > 0 }).text)
    files:set("library.c", source(g, config, context, header))
    files:set("example.c", example(g, config, context, header))
end

return library
