-- predictor: NAME_predict.h, the forward pass for one row as a file of C that needs nothing else, and predict.c, a
-- program around it (make predict). Its plan is the weights, each once in the form that the forward pass reads, and the
-- values of one row, whose memory is used again.
local build = require "graph.build"
local c_text = require "emit.targets.c_text"
local carries = require "passes.carries"
local cpu = require "emit.program.cpu"
local fusion = require "passes.fusion"
local graph = require "graph.graph"
local kernels = require "emit.kernels.kernels"
local layout = require "passes.layout"
local memory = require "passes.memory"
local names = require "emit.program.names"
local ordered = require "base.ordered"
local precision = require "passes.precision"
local predictions = require "emit.program.predictions"
local profile = require "emit.program.profile"
local program_memory = require "emit.program.memory"
local sections = require "emit.program.sections"
local step = require "emit.program.step"
local targets = require "emit.targets.targets"
local text = require "base.text"
local words = require "spec.words"

local predictor = {}

local BYTES, TYPE = { f32 = 4, f64 = 8, i32 = 4 }, { f32 = "float", f64 = "double", i32 = "int32_t" }

-- Bytes before the weights in their file: what they are of, and a checksum (runtime/files/weights.h).
local HEAD = 64

-- The target whose kernels it has, whatever that of the program is.
local function host_target() return targets.get(words.default("target", "kind")) end

-- === the plan ====================================================================================

local function aligned(n) return (n + layout.ALIGN - 1) // layout.ALIGN * layout.ALIGN end

-- The weights that nodes read, as lists: those of a loop, of which each layer has one behind the other, or one alone.
local function items_of(own)
    local items, seen, of_region = {}, {}, {}
    graph.walk(own.forward, function(node)
        for _, t in ipairs(graph.reads(node)) do
            if (t.kind == "param" or t.kind == "view") and not seen[t] then
                seen[t] = true
                local item = t.scope and of_region[t.scope]
                if not item then
                    item = { size = 0, count = t.scope and t.scope.count or 1 }
                    items[#items + 1] = item
                    if t.scope then of_region[t.scope] = item end
                end
                item[#item + 1], item.size = t, item.size + aligned(graph.places(t))
            end
        end
    end)
    return items
end

-- Adds the rows of a weight: where each of its parameters comes from, and where it goes, in bytes.
local function add_rows(rows, t, bytes)
    local param, at = t.param, t.place.offset * bytes
    local element = graph.is_half(t) and 2 or bytes
    for _, member in ipairs(param.members or { param }) do
        local n = graph.elements(member.shape)
        rows[#rows + 1] = { from = member.of.flat, at = at, stride = t.place.stride * bytes, count = param.count, n = n,
            half = element == 2 }
        at = at + n * element
    end
end

-- Places the weights; returns their tensors, the rows of the table, and bytes.
local function place_weights(own)
    local bytes, at, list, rows = BYTES[own.real], 0, {}, {}
    for _, item in ipairs(items_of(own)) do
        local inside = at
        for _, t in ipairs(item) do
            t.place = { arena = "parameters", offset = inside, stride = item.size, slots = item.count }
            inside, list[#list + 1] = inside + aligned(graph.places(t)), t
            add_rows(rows, t, bytes)
        end
        at = at + item.size * item.count
    end
    return list, rows, at * bytes
end

--- Lowers g.forward_only and plans it: { g, weights = tensors, rows = those of the table of weights, weight_bytes,
--- value_bytes }; nil where nothing can be predicted.
function predictor.plan(g, config)
    local own = g.forward_only
    if type(own) == "string" then return nil end
    local c = ordered.copy(config, { builder = build.new(own, config.ops), behind = host_target().behind })
    c.panels = nil      -- a weight is there once
    precision.run(own, c)
    if own.half then layout.narrow_views(own, c) end
    own.views = {}
    if not config.without:has "fusion" then fusion.run(own, c) end
    carries.run(own, c)
    local _, height = memory.values(own)
    for _, t in ipairs(own.inputs) do t.place = { arena = "batch", offset = 0, slots = 1 } end
    own.micro.place = { arena = "batch", offset = 0, slots = 1 }
    local weights, rows, bytes = place_weights(own)
    return { g = own, weights = weights, rows = rows, weight_bytes = bytes, value_bytes = height * BYTES[own.real] }
end

--- The field `predict` of plan.json: bytes of weights and of values.
function predictor.facts(plan)
    return { rows = 1, weight_bytes = plan.weight_bytes, value_bytes = plan.value_bytes }
end

-- === the library =================================================================================

local function forward_text(plan, config, context)
    local own = plan.g
    context.distances, context.loops = names.set(own)
    graph.walk(own.forward, function(node)
        if node.op ~= "times" then node.kernel = kernels.make(node, "predict", context) end
    end)
    return step.lines(own.forward, context.target)
end

-- The declaration of a field of the structs, and its place behind the address `base`.
local function weight_field(t)
    return ("const %s *%s; /* %s */"):format(c_text.type_of(t).text, c_text.field(t), graph.shape_text(t.shape))
end

local function weight_place(t)
    return (".%s = (const %s *)(w + %d),"):format(c_text.field(t), c_text.type_of(t).text, t.place.offset)
end

local function fields_of(list, declare) return sections.lines(ordered.collect(list, declare)) end

local function inputs_of(own)
    return ordered.collect(own.inputs, function(t) return t ~= own.inputs[#own.inputs] and t or nil end)
end

-- The fields of a row for the library, as declarations with their shapes.
local function row_fields(own)
    return fields_of(inputs_of(own), function(t)
        return ("const %s *%s; /* %s */"):format(TYPE[t.dtype], t.name,
            graph.shape_text(table.move(t.shape, 2, #t.shape, 1, {})))
    end)
end

-- The batch of row r.
local function row_places(own)
    return fields_of(inputs_of(own), function(t)
        return (".%s = rows->%s + r * %d,"):format(t.name, t.name, graph.elements(t.shape))
    end)
end

local function reads_micro(own)
    local found = false
    graph.walk(own.forward, function(node)
        for _, t in ipairs(graph.reads(node)) do found = found or t == own.micro end
    end)
    return found
end

local function loops_text(context)
    local lines = ordered.collect(context.loops, function(loop)
        return ("enum { %s = %d }; /* layers of %s */"):format(loop[1], loop[2], loop[3])
    end)
    local distances = names.lines(context.distances).text
    if distances ~= "" then lines[#lines + 1] = distances end
    return sections.lines(lines)
end

local function embedded(name) return text.block((host.embedded(name):gsub("\n+$", ""))) end

-- How rows are made, in words.
local function row_words(config)
    local norm, kind = config.data.norm, config.data.kind
    if kind == "text" then return "ids: the place of a byte in VOCABULARY (rows.c)" end
    if kind == "tokens" then return "ids of tokens" end
    if (kind == "idx" or kind == "cifar10") and norm then
        return ("(byte * %.9g - MEAN[c]) / STD[c] for channel c (rows.c)"):format(norm.scale)
    end
    return "what rows.c makes of a row of the data: scaled, standardised, categories as numbers"
end

local function context_of(config, own, template)
    local target = ordered.copy(host_target(), { barrier = false })
    return { ops = config.ops, real = own.real, half = own.half, names = {}, helpers = {}, ranges = {},
        template = template, functions = kernels.functions(), profile = profile.portable(config.profile),
        target = target, embedded = function(name) return host.embedded("templates/" .. name) end }
end

--- Lowers the forward pass to C. The number that a file of weights must begin with follows from the text of the forward
--- pass, without comments, and the places of the weights: whatever else the spec says of training, they fit.
function predictor.lower(plan, config, context)
    local mine = context_of(config, plan.g, context.template)
    local calls = forward_text(plan, config, mine)
    local functions = table.concat(ordered.collect(mine.functions.list, function(f) return f.text end), "\n")
    local lines = ordered.collect(plan.rows, function(r)
        return ("%d %d %d %d %s"):format(r.at, r.stride, r.count, r.n, tostring(r.half))
    end)
    local whole = (functions .. calls.text .. table.concat(lines, "\n")):gsub("//[^\n]*", ""):gsub("/%*.-%*/", "")
    plan.identity = text.block("0x" .. host.sha256((whole:gsub("%s+", " "))):sub(1, 16) .. "ull")
    plan.context, plan.calls, plan.functions = mine, calls, functions
end

-- The names of the program in its files.
local function named(config, more)
    return ordered.copy({ name = text.ident(config.name), upper = text.ident(config.name:upper()) }, more)
end

local function library_text(plan, config, context, header)
    local own, template = plan.g, context.template("program/predict.h")
    local mine, calls, functions = plan.context, plan.calls, plan.functions
    local output, micro = own.output, reads_micro(own)
    local half = own.half and embedded(("runtime/base/%s.h"):format(own.half)) or text.block("")
    return sections.render(template, {
        { "face", named(config, { header = text.block(header(config.name .. "_predict.h",
            "the model alone, as one file of C")), fields = row_fields(own), outputs = graph.elements(output.shape),
            shape = text.comment(graph.shape_text(table.move(output.shape, 2, #output.shape, 1, {}))),
            values = plan.value_bytes, rows = text.comment(row_words(config)), bytes = HEAD + plan.weight_bytes }) },
        { "runtime", { upper = text.ident(config.name:upper()), real = text.ident(TYPE[own.real]), half = half,
            denormals = embedded "runtime/base/denormals.h", micro = micro } },
        { "kernels", { functions = text.block((mine.target.alone(functions, mine) .. "\n" .. functions)
            :gsub("^\n+", "")) } },
        { "forward", { sizes = loops_text(mine), weights = fields_of(plan.weights, weight_field),
            values = fields_of(program_memory.placed(own, "activations"), function(t)
                return ("%s /* %s */"):format(mine.target.field(t, c_text.field(t) .. ";"), graph.shape_text(t.shape))
            end), rows = row_fields(own), micro = micro, calls = calls } },
        { "predict", named(config, { head = HEAD, identity = plan.identity, bytes = plan.weight_bytes,
            weights = fields_of(plan.weights, weight_place),
            values = fields_of(program_memory.placed(own, "activations"), function(t)
                return mine.target.place(t, "v", t.place.offset)
            end), row = row_places(own), micro = micro, outputs = graph.elements(output.shape),
            number = text.block(c_text.load(output, mine.target.pointer(output) .. "[i]")) }) },
    })
end

-- === the program around it =======================================================================

-- The fields of a row for the library, at their places in a batch of one row.
local function batch_fields(own)
    return fields_of(inputs_of(own), function(t, i)
        return (".%s = (const %s *)(batch + ga_batch_offset(&r->source, %d, 1)),"):format(t.name, TYPE[t.dtype], i - 1)
    end)
end

local function program_text(plan, config, context, header)
    local own, form, reason = plan.g, predictions.form(config)
    return sections.render(context.template("program/predict.c"), {
        { "words", named(config, { header = text.block(header("predict.c",
            "outputs for the rows of a file: make predict")), real = text.ident("GA_" .. own.real:upper()),
            ignore = config.loss.fields.ignore or -100, form = form and text.ident(form) or false,
            reason = text.string("--probabilities: " .. (reason or "")), checks = cpu.is_checked(config) }) },
        cpu.section(config, context),
        { "weights", { name = text.ident(config.name) } },
        { "rows", named(config, { fields = batch_fields(own) }) },
        { "main", { name = text.ident(config.name), row = predictions.shape(own) } },
    })
end

-- The table from which `train --save-weights` writes the file.
local function table_rows(plan)
    return fields_of(plan.rows, function(r)
        return ("{%d, %d, %d, %d, %d, %d, %s},"):format(r.from.offset, r.from.stride, r.count, r.n, r.at, r.stride,
            r.half and "true" or "false")
    end)
end

--- The section of predictions.c that writes the weights.
function predictor.saving(plan, config, target)
    local half = plan.g.half
    return { "weights", { name = text.ident(config.name), identity = plan.identity, bytes = plan.weight_bytes,
        rows = table_rows(plan), device = target.device, half = half and text.ident(half) or false,
        narrow = text.ident(half and "narrow" or "NULL"), ema = config.optimizer.own.ema ~= nil } }
end

--- Adds NAME_predict.h and predict.c to a map of files.
function predictor.render(plan, config, context, header, files)
    files:set(config.name .. "_predict.h", library_text(plan, config, context, header))
    files:set("predict.c", program_text(plan, config, context, header))
end

return predictor
