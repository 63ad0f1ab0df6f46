-- main: the text of main.c: the command line and the training loop.
local ordered = require "base.ordered"
local sample = require "emit.program.sample"
local scaler = require "emit.boundary.scaler"
local schedule = require "spec.schedule"
local sections = require "emit.program.sections"
local text = require "base.text"

local main = {}

-- A call made each `every` cycles (a number, "epoch" or nil), after the last one, and where `asked` holds (C, or nil).
local function periodic(every, call, asked)
    if every == 1 then return text.block(call) end
    local due = every == "epoch" and "epoch_ends || "
        or every and ("m->count.cycle %% %d == 0 || "):format(every) or ""
    return text.block(("if (%s%slast) %s"):format(due, asked and asked .. " || " or "", call))
end

-- The evaluations. A schedule that looks at them looks at those that are due: that of a shortened run's
-- last cycle would not be there if it had gone on.
local function evaluations(config)
    local eval = config.eval
    if not eval then return text.block("") end
    if not config.schedule.rule.plateau then return periodic(eval.every, "GA_TRY(log_evaluation(m, e));") end
    local due = eval.every == "epoch" and "epoch_ends" or ("m->count.cycle %% %d == 0"):format(eval.every)
    return text.block(("const bool due = %s;\nif (due || last) GA_TRY(log_evaluation(m, due, e));"):format(due))
end

local function log_section(config)
    local fields = (sample.positions(config) > 0 and " | GA_HAS_TOKENS" or "")
        .. (schedule.moves_momentum(config) and " | GA_HAS_MOMENTUM" or "")
        .. (config.scaler and " | GA_HAS_SCALE" or "")
    return { "log_update", { fields = text.block(fields), momentum = schedule.moves_momentum(config),
        scale = text.block(config.scaler and scaler.last(config, "s->") or ""),
        positions = sample.positions(config) } }
end

local function train_section(config, name)
    return { "train", ordered.copy(scaler.stops(config), { name = name,
        by_epoch = config.eval ~= nil and config.eval.every == "epoch",
        ignores_nonfinite = config.train.on_nonfinite == "ignore",
        log = periodic(config.log.every, "log_update(m, start, before);"), evaluate = evaluations(config),
        checkpoint = periodic(config.checkpoint and config.checkpoint.every,
            "GA_TRY(checkpoint(m, last, &failures, e));", "m->save") }) }
end

-- A line of missing_feature for each feature of the CPU that the program was built for.
local function feature_tests(config)
    return ordered.collect(config.cpu_features, function(feature)
        local name = text.string(feature).text
        return ("if (!__builtin_cpu_supports(%s)) return %s;"):format(name, name)
    end)
end

--- main.c.
function main.render(g, config, context, header)
    local name, own, tests = text.ident(config.name), context.target.main(config), feature_tests(config)
    local plateau = config.schedule.rule.plateau or false
    return sections.render(context.template("program/main.c"), {
        { "head", { header = text.block(header("main.c", "command line and training loop")) } },
        own.device and { "device_counted", { parallel = own.parallel } } or { "counted", {} },
        log_section(config),
        plateau and { "evaluate_for_plateau", { name = name,
            metric = text.ident(config.schedule.fields.metric or "loss") } } or { "evaluate", { name = name } },
        { "cycle_by_steps", { name = name } },
        config.data.stream and { "reading_stopped", { name = name } },
        { "one_cycle", { name = name, stream = config.data.stream } },
        { "checkpoint", { name = name } },
        train_section(config, name),
        { "run", { name = name, sample = sample.possible(g, config), ema = config.optimizer.own.ema ~= nil,
            plateau = plateau } },
        #tests > 0 and { "missing_feature", { tests = sections.lines(tests) } },
        { "stopped", { name = name } },
        { "main", { name = name, tests_cpu = #tests > 0, device = own.device } },
    })
end

return main
