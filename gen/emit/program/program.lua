-- program: the list of files of an emitted program and their header. Output depends on spec, options,
-- profile and version alone.
local batch = require "emit.program.batch"
local c = require "emit.targets.c.c"
local clip = require "emit.boundary.clip"
local cuda = require "emit.targets.cuda.cuda"
local cuda_program = require "emit.targets.cuda.program"
local cuda_step = require "emit.targets.cuda.step"
local data = require "emit.program.data"
local expr = require "base.expr"
local glob = require "base.glob"
local gradients = require "emit.program.gradients"
local graph = require "graph.graph"
local kernels = require "emit.kernels.kernels"
local library = require "emit.program.library"
local ordered = require "base.ordered"
local outliers = require "emit.boundary.outliers"
local plan = require "emit.program.plan"
local probe = require "emit.program.probe"
local profile = require "emit.program.profile"
local rate = require "emit.boundary.rate"
local sample = require "emit.program.sample"
local scaler = require "emit.boundary.scaler"
local states = require "emit.boundary.states"
local step = require "emit.program.step"
local template = require "base.template"
local text = require "base.text"
local update = require "emit.boundary.update"

local program = {}

local loaded = {}

local function template_of(name)
    if not loaded[name] then
        local file = "templates/" .. name
        loaded[name] = template.load(host.embedded(file), file)
    end
    return loaded[name]
end

-- The runtime that every program has.
local RUNTIME = { "arena", "ckpt", "ckpt_load", "ckpt_resume", "cycle", "data", "epochs", "file", "folder",
    "ga", "launcher", "layout", "loader", "log", "options", "progress", "rng", "safetensors", "safetensors_file",
    "safetensors_load", "safetensors_names", "stop", "team", "text", "watchdog" }

-- The files of the runtime that this program is built from.
local function runtime_of(config)
    local own = ordered.copy(data.runtime(config))
    if config.schedule.rule.plateau then own[#own + 1] = "plateau" end
    if scaler.moves(config) and config.target == "c" then own[#own + 1] = "scaler" end
    return cuda_program.runtime(config, table.move(own, 1, #own, #RUNTIME + 1, ordered.copy(RUNTIME)))
end

local function lines(list) return text.block(table.concat(list, "\n")) end

-- First lines of every emitted file: what, from what, how to get it again, whose it is.
local function header_of(config, facts, open, middle, close)
    return function(file, what)
        local rows = {
            ("%s: %s"):format(file, what),
            ("From %s (sha256 %s...) by gagen %s: %s"):format(config.shown_path,
                config.sha256:sub(1, 12), host.version, config.shown_command),
            ("%d parameters, %d bytes planned, 0 allocations after start."):format(
                facts.totals.parameters, facts.totals.bytes),
            "Edit freely: nothing but cc is needed to rebuild. SPDX-License-Identifier: 0BSD",
        }
        local out = {}
        for i, row in ipairs(rows) do
            out[i] = (i == 1 and open or middle) .. text.comment(row).text
        end
        return table.concat(out, "\n") .. close .. "\n"
    end
end

local function used_first(g)
    local list = {}
    for _, wanted in ipairs { true, false } do
        for _, param in ipairs(g.params) do
            if param.used == wanted then list[#list + 1] = param end
        end
    end
    table.sort(list, function(a, b) return a.flat.offset < b.flat.offset end)
    return list
end

local function shape_comment(shape, count)
    if count > 1 then shape = { count, table.unpack(shape) } end
    return graph.shape_text(shape)
end

local function pad(s, width) return s .. (" "):rep(width - #s) end

-- "real *fc1_weight;   /* (64, 64) */" for each tensor.
local function fields(tensors, target)
    local width, list = 0, {}
    for _, t in ipairs(tensors) do width = math.max(width, #t.name) end
    for i, t in ipairs(tensors) do
        local count = t.scope and t.place.slots or 1
        list[i] = ("%s /* %s */"):format(target.field(t, pad(t.name .. ";", width + 1)),
            shape_comment(t.shape, count))
    end
    return lines(list)
end

local function activations(g)
    return ordered.collect(g.tensors, function(t)
        if t.place and t.place.arena == "activations" then return t end
    end)
end

local function view_tensors(g)
    return ordered.collect(g.tensors, function(t)
        if t.place and t.place.arena == "views" then return t end
    end)
end

local function size_lines(g, config, context)
    local list = {
        ("B = %d, /* rows of a micro-batch */"):format(config.batch),
        ("A = %d, /* micro-steps of a cycle */"):format(g.accumulate),
        ("FLAT = %d, /* elements of the flat space */"):format(g.flat_elements),
        ("TRAINED = %d, /* of which trained */"):format(g.trained_elements),
        ("PARAM_COUNT = %d, TRAINED_PARAMS = %d, STATES = %d,"):format(#g.params,
            #ordered.collect(g.params, function(p) return p.used or nil end), #g.state_names),
        ("NORM_TILE = %d, NORM_TILES = %d,"):format(clip.TILE, select(2, clip.ranges(g, config))),
        ("IGNORE = %d, /* a target that does not count */"):format(config.loss.fields.ignore or -100),
        ("DATA_FILES = %d,"):format(data.file_count(config)),
    }
    for _, more in ipairs { batch.sizes(g), cuda_program.sizes(config, context) } do
        table.move(more, 1, #more, #list + 1, list)
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
local function step_fields(g, config, sweeps)
    local list = {}
    for _, fields in ipairs { rate.fields(config), outliers.fields(config) } do
        for _, field in ipairs(fields) do list[#list + 1] = ("double %s; /* %s */"):format(field[1], field[2]) end
    end
    for _, row in ipairs(scaler.rows(config)) do
        list[#list + 1] = ("%s %s; /* %s */"):format(row[1] == "integer" and "int64_t" or row[1], row[2], row[3])
    end
    local own = update.scalars(sweeps, g.layer_rates).fields
    return table.move(own, 1, #own, #list + 1, list)
end

-- Parameters for which a cycle collects something, and how many arrays a save inside a cycle has.
local function collected_of(g) return ordered.collect(g.params, function(p) return p.collected end) end
local function gradient_arrays(g) return 1 + (g.residues and 1 or 0) + (#collected_of(g) > 0 and 1 or 0) end

local function render_header(g, config, facts, context, sweeps, header)
    local real = g.real == "f64" and "double" or "float"
    local params = ordered.collect(used_first(g), function(p) return p.value end)
    local target = context.target
    local more = ordered.copy(cuda_program.header(g, config, facts, context, sweeps),
        gradients.header(g, config, used_first(g)))
    return context.template("program/model.h")("model", ordered.copy(more, {
        chunked = g.head ~= nil, sample = sample.possible(g, config), tensors = update.doubles(g, config) > 0,
        residues = g.residues, gradients = gradient_arrays(g),
        by_epoch = config.schedule.fields.by == "epoch",
        plateau = config.schedule.rule.plateau or false, ema = config.optimizer.own.ema ~= nil,
        header = text.block(header("model.h", "sizes, memory and functions of the program")),
        guard = text.ident(config.name:upper() .. "_MODEL_H"), name = text.ident(config.name),
        real = text.ident(real), dtype = text.ident(g.real == "f64" and "GA_F64" or "GA_F32"),
        sizes = size_lines(g, config, context), arenas = arena_names(facts), parameters = fields(params, target),
        views = fields(view_tensors(g), target), activations = fields(activations(g), target),
        batch = lines(batch.fields(g, target)),
        groups = lines(step_fields(g, config, sweeps)), state_fields = lines(states.fields(g, config)),
        sum_names = text.block(step.SUMS), grad_norm = text.comment(clip.norm_text(config)),
        factor = text.block((clip.factor_field(g, config))), times = text.comment(scaler.times(config)),
        over = text.comment(scaler.over(config)), rewrites = clip.writes(config),
    })).text
end

local function param_rows(params)
    return ordered.collect(params, function(p) return states.row(p, p.saved_shape or p.shape, p.flat) end)
end

local KIND = { uniform = "UNIFORM", normal = "NORMAL", value = "VALUE" }

local function init_rows(params, config, real)
    return ordered.collect(params, function(p)
        local kind, value, at = p.init.kind, p.init.bound or p.init.value, p.at
        for _, rule in ipairs(config.init) do
            if not p.buffer and glob.takes(rule.glob, p, rule.at, "init") then
                for _, name in ipairs { "uniform", "normal", "value" } do
                    if rule[name] then kind, value, at = name, rule[name], rule.at end
                end
                break
            end
        end
        expr.literal(value, real, at)          -- refuses what the type cannot hold
        return ("{%s, %s}, /* %s */"):format(KIND[kind], expr.literal(value, "f64"), p.name)
    end)
end

-- The rows of padding, which start at 0 whatever the others do.
local function zero_lines(params)
    local list = {}
    for _, p in ipairs(params) do
        local zero = p.init.zero
        if zero then
            list[#list + 1] = ("for (int l = 0; l < %d; l++) /* %s: padding */"):format(p.count, p.name)
            list[#list + 1] = ("    memset(m->flat_w + %d + (int64_t)l * %d, 0, sizeof(real) * %d);"):format(
                p.flat.offset + zero.from, p.flat.stride, zero.n)
        end
    end
    return lines(list)
end

local function place_rows(list, base, target)
    return ordered.collect(list, function(entry)
        return target.place(entry[1], base, entry[2])
    end)
end

-- How many cycles a run has.
local function length_of(config)
    local train = config.train
    return text.block(train.updates and ("const int64_t cycles = %d;"):format(train.updates)
        or ("const int64_t cycles = ga_epochs_cycles(&m->epochs, %s);"):format(
            expr.literal(train.epochs, "f64")))
end

-- The fields of the event of an evaluation.
local function measured(config)
    local names = ordered.collect(config.eval and config.eval.metrics or { "loss" }, function(metric)
        return "GA_HAS_" .. metric:upper()
    end)
    return table.concat(names, " | ")
end

-- The weight of a full cycle over all ranks if nothing is ignored.
local function nominal_of(config)
    local weight, each = config.loss.weight, config.losses_per_row
    if weight == "sum" then return text.block("1") end
    if weight == "micro" then return text.block("(double)A * world") end
    local of_row = weight == "token" and each > 1 and (" * %d"):format(each) or ""
    return text.block("(double)A * B" .. of_row .. " * world")
end

-- How long the schedule is if it does not say so itself.
local function schedule_lines(config)
    if config.schedule.fields.by ~= "epoch" then return lines { "m->schedule_total = cycles;" } end
    local train = config.train
    return lines { config.tail == "carry" and "m->epoch_cycles = m->epochs.batches;"
            or "m->epoch_cycles = ga_epochs_cycles(&m->epochs, 1);",
        train.epochs and ("m->schedule_total = %d;"):format(math.ceil(train.epochs))
            or ("m->schedule_total = (cycles * %d + m->epoch_cycles - 1) / m->epoch_cycles;"):format(
                config.epoch_times) }
end

-- How the numbers that a run keeps start, and how they go to a checkpoint and come back.
local function number_lines(config, sweeps)
    local started, saved, loaded = {}, {}, {}
    local numbers = update.numbers(sweeps)
    for _, list in ipairs { rate.numbers(config), outliers.numbers(config) } do
        table.move(list, 1, #list, #numbers + 1, numbers)
    end
    for i, number in ipairs(numbers) do
        local field, initial = "m->step." .. number.field, number.initial
        started[i] = ("%s = %s;"):format(field, type(initial) == "string" and initial
            or expr.literal(initial, "f64"))
        saved[i] = ("s.numbers[%d] = (ga_ckpt_number){%s, %s};"):format(i - 1, text.string(number.field).text, field)
        loaded[i] = ("%s = s.numbers[%d].value;"):format(field, i - 1)
    end
    if #saved > 0 then table.insert(saved, 1, ("s.number_count = %d;"):format(#saved)) end
    return { schedule_lines = schedule_lines(config), numbers_started = lines(started),
        numbers_saved = lines(saved), numbers_loaded = lines(loaded) }
end

local function render_model(g, config, facts, context, sweeps, header)
    local params = used_first(g)
    local target = context.target
    local flat = { "m->flat_w = (real *)m->memory[ARENA_PARAMETERS].base;",
        ("m->flat_g = (%s *)m->memory[ARENA_GRADIENTS].base;"):format(g.half_sums and "bf16" or "real") }
    if g.residues then flat[3] = "m->flat_residue = (real *)m->memory[ARENA_RESIDUES].base;" end
    local state_places = states.places(g, config)
    table.move(state_places, 1, #state_places, #flat + 1, flat)
    local state_tables, saved_states = states.tables(g, params)
    local views = view_tensors(g)
    local view_lines = {}
    if #views > 0 then
        view_lines = { target.views, "m->v = (views){" }
        for _, t in ipairs(views) do
            view_lines[#view_lines + 1] = "    " .. target.place(t, "v", t.place.offset)
        end
        view_lines[#view_lines + 1] = "};"
    end
    local device_flat = cuda_program.flat(g, config)
    table.move(device_flat, 1, #device_flat, #flat + 1, flat)
    local more = ordered.copy(cuda_program.model(config, facts), number_lines(config, sweeps))
    more = ordered.copy(ordered.copy(more, scaler.lines(config)), gradients.model(g, config, params))
    return context.template("program/model.c")("model", ordered.copy(more, {
        sample = sample.possible(g, config), tensors = update.doubles(g, config) > 0,
        residues = g.residues, gradients = gradient_arrays(g),
        header = text.block(header("model.c", "memory, initial values, data, checkpoints")),
        facts = text.block(program.facts_text(config, facts)),
        name = text.ident(config.name), params = lines(param_rows(params)),
        init = lines(init_rows(params, config, g.real)), zeros = zero_lines(params),
        places = lines(place_rows(ordered.collect(params, function(p)
            return { p.value, p.flat.offset }
        end), "flat", target)),
        flat_places = lines(flat), view_places = lines(view_lines),
        activation_places = lines(place_rows(ordered.collect(activations(g), function(t)
            return { t, t.place.offset }
        end), "a", target)),
        arenas = lines(ordered.collect(facts.arenas, function(a)
            if a.memory == "device" then return nil end
            return ("{%s, %d%s},"):format(text.string(a.name).text, a.bytes,
                not more.device and "" or a.memory == "pinned" and ", true" or ", false")
        end)),
        reader = text.block(data.header(config)), data_tables = data.tables(config),
        open_sources = data.open(config), split = data.split(config), eval_data = data.evaluation(config),
        collected = #collected_of(g),
        states = lines(saved_states), state_params = lines(state_tables),
        length = length_of(config), nominal = nominal_of(config),
        plateau = config.schedule.rule.plateau or false, ema = config.optimizer.own.ema ~= nil,
        plateau_fields = rate.plateau(config),
        accumulate = data.accumulate(config), serving = data.serving(config),
        measured = text.block(measured(config)), f1 = config.measures_f1,
    })).text
end

-- Constants of model.c and main.c that come straight from the spec.
function program.facts_text(config, facts)
    local train = config.train
    return table.concat({
        ("#define VERSION %s"):format(text.string(host.version).text),
        ("#define SPEC_SHA256 %s"):format(text.string(config.sha256).text),
        ("#define SPEC_HASH 0x%sull /* its first 64 bits: all ranks must agree */"):format(
            config.sha256:sub(1, 16)),
        ("#define PROFILE %s"):format(text.string(config.profile).text),
        ("#define PARAMETERS %d"):format(facts.totals.parameters),
        ("#define PLANNED_BYTES %d"):format(facts.totals.bytes),
        ("#define SEED %d"):format(train.seed),
        "",
        "enum {",
        ("    SHUFFLE = %d, KEEP = %d,"):format(config.data.shuffle and 1 or 0,
            config.checkpoint and config.checkpoint.keep or 3),
        ("    DDP = %d, RANKS = %d, THREADS = %d, EVAL_BATCHES = %d"):format(
            config.parallel == "none" and 0 or 1, config.ranks_required or 0, config.threads or 0,
            config.eval and config.eval.batches or 0)
            .. (config.target == "cuda" and (",\n    ARCH = %d"):format(config.arch or 0) or ""),
        "};", "" }, "\n")
end

-- A call made each `every` cycles (a number, "epoch" or nil) and after the last one.
local function periodic(every, call)
    if every == 1 then return text.block(call) end
    local due = every == "epoch" and "epoch_ends || "
        or every and ("m->count.cycle %% %d == 0 || "):format(every) or ""
    return text.block(("if (%slast) %s"):format(due, call))
end

-- The evaluations. A schedule that looks at them looks at those that are due: that of a shortened run's
-- last cycle would not be there if it had gone on.
local function evaluations(config)
    local eval = config.eval
    if not eval then return text.block("") end
    if not config.schedule.rule.plateau then return periodic(eval.every, "GA_TRY(evaluate(m, e));") end
    local due = eval.every == "epoch" and "epoch_ends" or ("m->count.cycle %% %d == 0"):format(eval.every)
    return text.block(("const bool due = %s;\nif (due || last) GA_TRY(evaluate(m, due, e));"):format(due))
end

local function render_main(g, config, context, header)
    local check = ordered.collect(config.cpu_features, function(feature)
        local name = text.string(feature).text
        return ("if (!__builtin_cpu_supports(%s)) return %s;"):format(name, name)
    end)
    local more = ordered.copy(cuda_program.main(config), scaler.stops(config))
    return context.template("program/main.c")("main", ordered.copy(more, {
        header = text.block(header("main.c", "command line and training loop")),
        name = text.ident(config.name), check_cpu = lines(check),
        log = periodic(config.log.every, "log_update(m, start, before);"),
        evaluate = evaluations(config),
        checkpoint = periodic(config.checkpoint and config.checkpoint.every,
            "GA_TRY(checkpoint(m, last, &failures, e));"),
        by_epoch = config.eval ~= nil and config.eval.every == "epoch",
        scale = text.block(config.scaler and scaler.last(config, "s->") or ""),
        ignores_nonfinite = config.train.on_nonfinite == "ignore",
        fields = text.block((sample.positions(config) > 0 and " | GA_HAS_TOKENS" or "")
            .. (rate.moves_momentum(config) and " | GA_HAS_MOMENTUM" or "")
            .. (config.scaler and " | GA_HAS_SCALE" or "")),
        momentum = rate.moves_momentum(config),
        positions = sample.positions(config), sample = sample.possible(g, config),
        stream = config.data.stream,
        plateau = config.schedule.rule.plateau or false, ema = config.optimizer.own.ema ~= nil,
        metric = text.ident(config.schedule.fields.metric or "loss"),
    })).text
end

local function render_makefile(config, context, files, header)
    local sources, own = {}, cuda_program.makefile(config)
    for _, name in ipairs(runtime_of(config)) do
        sources[#sources + 1] = "runtime/" .. name .. ".c"
    end
    return context.template("program/Makefile")("makefile", ordered.copy(own, {
        files = text.block(own.files.text .. (files:has("math.c") and " math.c" or "")
            .. (files:has("library.c") and " library.c" or "")
            .. (files:has("sample.c") and " sample.c" or "")),
        header = text.block(header("Makefile", "builds train")), name = text.ident(config.name),
        flags = text.block(table.concat(config.compiler_flags, " ")),
        sources = text.block(table.concat(sources, " \\\n    ")),
    })).text
end

local function render_readme(g, config, facts, context)
    local rows = ordered.collect(used_first(g), function(p)
        return ("| `%s`%s | %s |"):format((p.name:gsub("%%d", "N")),
            p.count > 1 and (", N < " .. p.count) or "", graph.shape_text(p.shape))
    end)
    local cycle = facts.cycle
    return context.template("program/README.md")("readme", ordered.copy(cuda_program.main(config), {
        name = text.ident(config.name), spec = text.comment(config.shown_path),
        command = text.comment(config.shown_command), version = text.comment(host.version),
        parameters = facts.totals.parameters,
        memory = facts.totals.bytes, flops = facts.totals.flops_per_cycle,
        cycle = text.comment(("%d micro-steps of %d rows"):format(cycle.accumulate, cycle.rows)),
        table = lines(rows),
    })).text
end

-- Provenance names the spec as it is shown, so that no file says where gagen was run.
local function show_places(g, config)
    local function shown(at)
        if at:sub(1, #config.path) ~= config.path then return at end      -- given by --set
        return config.shown_path .. at:sub(#config.path + 1)
    end
    for _, body in ipairs { g.forward, g.evaluation, g.backward, g.views } do
        graph.walk(body, function(node) node.at = shown(node.at) end)
    end
    config.optimizer.at, config.schedule.at = shown(config.optimizer.at), shown(config.schedule.at)
end

-- The kernels of a program and the plan's facts.
local function planned(g, config)
    local device = config.target == "cuda"
    local context = { ops = config.ops, real = g.real, half = g.half, template = template_of, names = {}, helpers = {},
        functions = kernels.functions(),
        profile = profile.get(config.profile),
        target = device and cuda or c,
        embedded = function(name) return host.embedded("templates/" .. name) end }
    local all = step.kernels(g, context)
    local sweeps = update.sweeps(g, config, context)
    return plan.facts(g, config, all, sweeps), context, all, sweeps
end

--- The plan's facts of a graph that no program is written of.
function program.plan(g, config) return (planned(g, config)) end

--- All files of the program as an ordered map from name to text, and the plan's facts.
function program.render(g, config)
    show_places(g, config)
    local device = config.target == "cuda"
    local emitter = device and cuda_step or step
    local facts, context, all, sweeps = planned(g, config)
    if device then context.kernels = cuda_step.kernels(g, config, context, sweeps) end
    local header = header_of(config, facts, "/* ", " * ", " */")
    local files = ordered.map()
    files:set("model.h", render_header(g, config, facts, context, sweeps, header))
    emitter.render(g, config, context, all, sweeps, header, files)
    probe.render(g, config, context, device and cuda_step.calls(all, context) or step.calls(g, config, all, sweeps),
        facts, header, files)
    files:set("model.c", render_model(g, config, facts, context, sweeps, header))
    files:set("main.c", render_main(g, config, context, header))
    library.render(g, config, context, header, files)
    sample.render(g, config, context, header, files)
    files:set("Makefile", render_makefile(config, context, files,
        header_of(config, facts, "# ", "# ", "")))
    files:set("README.md", render_readme(g, config, facts, context))
    files:set("plan.json", host.json(facts) .. "\n")
    files:set("spec.lua", config.text)
    files:set("runtime/probe.c", host.embedded("runtime/probe.c"))
    if not device then files:set("runtime/collect.c", host.embedded("runtime/collect.c")) end
    for _, list in ipairs { runtime_of(config), cuda_program.engines(config) } do
        for _, name in ipairs(list) do
            files:set("runtime/" .. name .. ".c", host.embedded("runtime/" .. name .. ".c"))
        end
    end
    for _, name in ipairs(host.embedded_names("runtime/")) do
        if name:match("%.h$") and cuda_program.wants_header(config, name)
            and (name ~= "runtime/scaler.h" or scaler.moves(config)) then
            files:set(name, host.embedded(name))
        end
    end
    return files, facts
end

return program
