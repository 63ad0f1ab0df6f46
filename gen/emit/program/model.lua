-- model: the text of model.c: what a program is asked for, opening and closing; memory.c, data.c and save.c are
-- parts of it.
local chunks = require "emit.boundary.chunks"
local cpu = require "emit.program.cpu"
local data = require "spec.data"
local division = require "emit.boundary.division"
local expr = require "base.expr"
local metrics = require "spec.metrics"
local ordered = require "base.ordered"
local placed = require "emit.boundary.placed"
local profile = require "emit.program.profile"
local rate = require "emit.boundary.rate"
local sample = require "emit.program.sample"
local save = require "emit.program.save"
local scaler = require "emit.boundary.scaler"
local sections = require "emit.program.sections"
local state_file = require "emit.boundary.state_file"
local statements = require "base.statements"
local text = require "base.text"
local threads = require "emit.program.threads"

local model = {}
local lines = sections.lines

-- How many cycles a run has.
local function length_of(config)
    local train = config.train
    return text.block(train.updates and ("const int64_t cycles = %d;"):format(train.updates)
        or ("const int64_t cycles = ga_epochs_cycles(&m->epochs, %s);"):format(
            expr.literal(train.epochs, "f64")))
end

-- The metrics of an evaluation: the statements before their records, and the records' initializers. The log has those
-- of the spec; the schedule, the best and patience may look at the loss too.
local function measured(config)
    local before, list = {}, {}
    local spelling = metrics.spelling(function(name)
        return metrics.adds(config, name) and "sums[SUM_" .. name:upper() .. "]"
    end)
    local function add(entry, more)
        local parts, value = statements.text(metrics.statements(entry), "double", spelling)
        for _, part in ipairs(parts) do before[#before + 1] = statements.broken("", part, 96) end
        list[#list + 1] = statements.broken("", ("{.name = %s, .value = %s%s%s},"):format(text.string(entry.name).text,
            value, entry.share and ", .share = true" or "", more), 88)
    end
    for _, entry in ipairs(config.metrics) do add(entry, "") end
    local loss = config.catalog.metrics:get "loss"
    local watched = config.schedule.rule.plateau and config.schedule.fields.metric == "loss"
        or config.best and config.best.metric == "loss"
    if watched and not ordered.find(config.metrics, loss) then add(loss, ", .hidden = true") end
    return lines(before), lines(list)
end

-- The weight of a full cycle over all ranks if nothing is ignored.
local function nominal_of(config)
    local weight, each = config.loss.weight, config.losses_per_row
    if weight == "sum" then return text.block("1") end
    if weight == "micro" then return text.block("(double)A * ga_comm_size(m->comm)") end
    local of_row = weight == "token" and each > 1 and (" * %d"):format(each) or ""
    return text.block("(double)A * B" .. of_row .. " * ga_comm_size(m->comm)")
end

-- The epochs that so many cycles reach. shift: what ga_epochs_shift says of cycles before, "" of none.
local function total_epochs(config, cycles, shift)
    return ("m->schedule_total = (%s * %d%s + m->epoch_cycles - 1) / m->epoch_cycles;"):format(cycles,
        config.epoch_times, shift)
end

-- How long the schedule is if it does not say so itself.
local function schedule_lines(config)
    if config.schedule.fields.by ~= "epoch" then return lines { "m->schedule_total = cycles;" } end
    local train = config.train
    return lines { config.tail == "carry" and "m->epoch_cycles = m->epochs.batches;"
            or "m->epoch_cycles = ga_epochs_cycles(&m->epochs, 1);",
        train.epochs and ("m->schedule_total = %d;"):format(math.ceil(train.epochs))
            or total_epochs(config, "cycles", "") }
end

-- Epochs of a run that goes on count from its place, whatever cycles were before. A loop of one's own may have rows of
-- its own.
local function resumed_length(config)
    local epochs, by_epoch = config.train.epochs, config.schedule.fields.by == "epoch"
    if not epochs and not by_epoch then return text.block("") end
    local list = { "if (trains) {", "    const ga_place place = ga_loader_place(m->loader);" }
    local function add(line, ...) list[#list + 1] = "    " .. line:format(...) end
    if epochs then
        add("const int64_t end = ga_epochs_end(&m->epochs, place, %s);", expr.literal(epochs, "f64"))
        add "if (!o->cycles) m->cycles = end;"
        if not by_epoch then add "m->schedule_total = end;" end
    end
    if by_epoch then
        add "m->epoch_shift = ga_epochs_shift(&m->epochs, place);"
        if not epochs then add(total_epochs(config, config.train.updates, " - m->epoch_shift")) end
    end
    list[#list + 1] = "}"
    return lines(list)
end

-- Bytes of the arenas that do not depend on the ranks.
local function fixed_bytes(facts)
    local sum = 0
    for _, arena in ipairs(facts.arenas) do sum = sum + (arena.sharded and 0 or arena.bytes) end
    return sum
end

-- The bytes of all arenas as C: those of a rank's part of a state are known when there are ranks. Those of a device for
-- itself are a field of the model.
local function planned_bytes(g, facts)
    local list, on_host = { "int64_t planned = PLANNED_BYTES;" }, {}
    for _, arena in ipairs(facts.arenas) do on_host[arena.name] = true end
    for _, arena in ipairs(facts.arenas) do
        local name = arena.name:gsub("^device_", "")
        local there = nil
        if arena.memory == "device" and on_host[name] then there = placed.on_device(g, name) end
        if arena.sharded and there ~= false then
            list[#list + 1] = ("planned += (int64_t)%s;"):format(there and ("bytes_of(&m->%s)"):format(there)
                or on_host[name] and ("m->memory[ARENA_%s].bytes"):format(name:upper()) or ("m->%s_bytes"):format(name))
        end
    end
    if #list == 1 then list[1] = "const " .. list[1] end
    return lines(list)
end

-- Constants of model.c that come straight from the spec.
local function facts_text(config, facts, context)
    local train = config.train
    return table.concat({
        ("#define VERSION %s"):format(text.string(host.version).text),
        ("#define SPEC_COMMAND %s"):format(text.string(config.shown_command).text),
        ("#define SPEC_SHA256 %s"):format(text.string(config.sha256).text),
        ("#define SPEC_HASH 0x%sull /* its first 64 bits: all ranks must agree */"):format(
            config.sha256:sub(1, 16)),
        ("#define PROFILE %s"):format(text.string(config.profile).text),
        ("#define PARAMETERS %d"):format(facts.totals.parameters),
        ("#define PLANNED_BYTES %d"):format(fixed_bytes(facts)),
        ("#define SEED %d"):format(train.seed)
            .. (config.best and "\n#define BEST_METRIC " .. text.string(config.best.metric).text or ""),
        "",
        "enum {",
        ("    SHUFFLE = %d, KEEP = %d,"):format(config.data.shuffle and 1 or 0,
            config.checkpoint.keep),
        ("    %sTHREADS = %d, EVAL_BATCHES = %d"):format(
            config.ranks_required and ("RANKS = %d, "):format(config.ranks_required) or "",
            threads.given(config.threads), config.eval and config.eval.batches or 0)
            .. table.concat(ordered.collect(context.target.constants(config, context), function(constant)
                return (",\n    %s = %d"):format(constant[1], constant[2])
            end)),
        "};", facts.busy and threads.constant(facts.busy) or "" }, "\n")
end

-- The steps between memory and training: the ranks, the data, the first values.
local function parts(g, config, own, updates)
    local first = { divided = g.sharded.parameters, saved = chunks.saved(g, "m->saved."),
        averages = division.averages_started(g), filed = g.state_file ~= nil, placed = placed.is_used(g),
        numbers = save.numbers_started(config, updates), required = config.ranks_required or false }
    return { name = text.ident(config.name), device = own.device, first = first, parallel = own.parallel,
        length = length_of(config), schedule_lines = schedule_lines(config),
        nominal = nominal_of(config), best = config.best ~= nil, ranks = config.mode.ranks or false,
        groups = #config.rank_groups > 0, scale_started = scaler.lines(config).scale_started,
        matrix = not own.device and profile.matrix(config) or false }
end

--- model.c.
function model.render(g, config, facts, context, updates, header)
    local name, own = text.ident(config.name), context.target.model(config, facts)
    local plateau, before, list = config.schedule.rule.plateau or false, measured(config)
    local moved = g.ranks and not config.sync_batchnorm and g.moved_elements - g.summed_elements or 0
    return sections.render(context.template("program/model.c"), {
        { "head", { header = text.block(header("model.c", "opening, evaluating and closing; its parts are below")),
            facts = text.block(facts_text(config, facts, context)), ranks = config.mode.ranks or false,
            plateau = plateau, checks = cpu.is_checked(config) } },
        cpu.section(config, context),
        moved > 0 and { "share_statistics", { device = own.device, moved = moved,
            array = text.ident(g.sharded.parameters and "untrained" or "flat_w"),
            on_device = text.ident(g.sharded.parameters and "device_untrained" or "device_w"),
            first = text.block(g.sharded.parameters and "SUMMED - TRAINED" or "SUMMED") } },
        { "evaluate", { name = name, device = own.device, ranks = config.mode.ranks or false,
            ema = config.optimizer.own.ema ~= nil, shift = metrics.adds(config, "shift"), shares = moved > 0,
            before = before, measured = list,
            split = text.string(data.has_eval_rows(config.data) and "eval" or "train") } },
        plateau and { "report", { name = name, device = own.device, plateau_fields = rate.plateau(config) } },
        g.sharded.parameters and { "no_watch", { name = name } }
            or { "watch", { name = name, device = own.device } },
        { "open_run", { name = name, resumed_length = resumed_length(config),
            by_epochs = config.train.updates == nil } },
        { "open_parts", parts(g, config, own, updates) },
        { "open", { name = name, device = own.device, placed = placed.is_used(g), ranks = g.ranks, 
            planned = planned_bytes(g, facts),
            target = text.ident(context.target.name) } },
        { "close", { name = name, device = own.device, placed = placed.is_used(g), parallel = own.parallel,
            divided = division.closing(g), filed = state_file.closing(g) } },
        { "predictions", {} }, sample.possible(g, config) and { "sample", {} },
    })
end

return model
