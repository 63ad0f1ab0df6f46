-- main: the text of main.c: the command line and the training loop.
local expr = require "base.expr"
local ordered = require "base.ordered"
local predictions = require "emit.program.predictions"
local sample = require "emit.program.sample"
local scaler = require "emit.boundary.scaler"
local schedule = require "spec.schedule"
local sections = require "emit.program.sections"
local text = require "base.text"
local watch = require "emit.program.watch"

local main = {}

-- The condition of what is due each `every` cycles (a number or "epoch") where `count` has the cycles.
local function due_each(every, count)
    return every == "epoch" and "epoch_ends" or ("%s.cycle %% %d == 0"):format(count or "m->count", every)
end

-- A call each `every` cycles and at the end.
local function periodic(every, call)
    return text.block(every == 1 and call or ("if (%s || last) %s"):format(due_each(every), call))
end

-- The evaluations. A schedule that looks at them looks at those that are due, and so do the best and patience: that of
-- a shortened run's last cycle would not be there if it had gone on. The end that the spec says has a best too.
local function evaluations(config)
    local eval, plateau = config.eval, config.schedule.rule.plateau
    if not eval then return text.block("") end
    if not plateau and not config.best then return periodic(eval.every, "GA_TRY(log_evaluation(m, e));") end
    local arguments = (plateau and ", due" or "") .. (config.best and ", due || (last && !o->cycles)" or "")
    return text.block(("const bool due = %s;\nif (due || last) GA_TRY(log_evaluation(m%s, e));"):format(
        due_each(eval.every), arguments))
end

-- The condition of the evaluation nearest to each tenth of the run. How long an epoch of a stream is, nobody knows:
-- each has a checkpoint.
local function near_tenth(config, count)
    local every = config.eval and config.eval.every
    if every == "epoch" and config.data.stream then return due_each(every) end
    local spacing = every == "epoch" and "ga_epochs_cycles(&m->epochs, 1)" or tostring(every or 1)
    local near = ("ga_cycle_near_tenth(&%s, m->cycles, %s)"):format(count or "m->count", spacing)
    return every and ("(%s && %s)"):format(due_each(every, count), near) or near
end

-- When a checkpoint is due, and the call.
local function checkpoints(config)
    local best, ends = config.best, config.best and config.best.patience > 0 and "ends" or "last"
    local every, kept = config.checkpoint.every, best and best.kept
    local call = ("GA_TRY(checkpoint(m, %s, &failures%s, e));"):format(ends, kept and ", &kept" or "")
    if every == 1 then return text.block(call) end
    local conditions = { ends, "m->save" }
    if kept then conditions[3] = "m->best.cycle == m->count.cycle" end
    if every == nil then
        conditions[#conditions + 1] = near_tenth(config)
    elseif every ~= "end" then
        conditions[#conditions + 1] = due_each(every)
    end
    local line = ("if (%s)"):format(table.concat(conditions, " || "))
    if #line > 90 then line = ("if (%s)"):format(table.concat(conditions, "\n    || ")) end
    return text.block(line .. "\n    " .. call)
end

local function by_epoch(config)
    return config.eval ~= nil and config.eval.every == "epoch" or config.checkpoint.every == "epoch"
end

-- The function that says whether a device may start a cycle before the host has read the one before: nothing is due
-- between both. false: there is none. Ranks agree behind each cycle whether they stop: one that had begun the next one
-- would wait in its sums for those that have read what was agreed and stopped. How long an epoch of a stream is, its
-- reader knows at its end.
local function going_on(config, target)
    local eval, every = config.eval, config.checkpoint.every
    if not target.device or config.mode.ranks or by_epoch(config) and config.data.stream then return false end
    local due = {}
    if eval then due[1] = due_each(eval.every, "count") end
    if every == nil then due[#due + 1] = near_tenth(config, "count")
    elseif every ~= "end" then due[#due + 1] = due_each(every, "count") end
    return { "goes_on", { by_epoch = by_epoch(config), due = sections.lines(ordered.collect(due, function(condition)
        return ("if (%s) return false;"):format(condition:gsub("^%((.*)%)$", "%1"))
    end)) } }
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
        by_epoch = by_epoch(config),
        best = config.best or { kept = false, patience = 0 },
        ignores_nonfinite = config.train.on_nonfinite == "ignore",
        log = periodic(config.log.every, "log_update(m, start, before);"), evaluate = evaluations(config),
        checkpoint = checkpoints(config) }) }
end

-- The function that evaluates: what the schedule, the best and patience make of the figures.
local function evaluate_section(config, name)
    local plateau, best = config.schedule.rule.plateau, config.best
    return { "evaluate", { name = name, plateau = plateau or false, best = best ~= nil,
        parameters = text.block((plateau and ", bool due" or "") .. (best and ", bool counts" or "")),
        plateau_metric = text.ident(config.schedule.fields.metric or "loss") } }
end

-- The messages that refuse --predict and --save-weights; false: the program takes them.
local function refusals(g)
    local outputs = predictions.obstacle(g)
    local weights = g.sharded.parameters and predictions.DIVIDED or type(g.forward_only) == "string" and g.forward_only
    return outputs and text.string("--predict: " .. outputs) or false,
        weights and text.string("--save-weights: " .. weights) or false
end

-- The settings of runtime/loop/best.h.
local function best_section(config, name)
    local best = config.best
    return best ~= nil and { "best", { name = name, metric = text.string(best.metric), kept = best.kept,
        more = text.ident(tostring(best.more)), patience = best.patience,
        min_delta = text.block(expr.literal(best.min_delta, "f64")) } }
end

-- The statements of main() for --watch-kernels.
local function watching(template, name, refusal)
    if not refusal then return sections.block(template, "watched", {}) end
    return sections.block(template, "not_watched", { name = name, why = text.block(refusal) })
end

--- main.c.
function main.render(g, config, context, header)
    local name, own = text.ident(config.name), context.target.main(config)
    local plateau, no_outputs, no_weights = config.schedule.rule.plateau, refusals(g)
    local goes_on = going_on(config, context.target)
    local refusal, template = watch.refusal(config, context.target), context.template("program/main.c")
    return sections.render(template, {
        { "head", { watched = not refusal, header = text.block(header("main.c", "command line and training loop")) } },
        own.device and { "device_counted", {} } or { "counted", {} },
        log_section(config),
        best_section(config, name),
        evaluate_section(config, name),
        { "cycle_by_steps", { name = name } },
        config.data.stream and { "reading_stopped", { name = name } },
        goes_on,
        { "one_cycle", { name = name, stream = config.data.stream, watched = not refusal, goes_on = text.block(
            goes_on and ("m->goes_on = goes_on(m%s);"):format(by_epoch(config) and ", batches" or "") or "") } },
        { "checkpoint", { name = name, kept = config.best ~= nil and config.best.kept } },
        train_section(config, name),
        { "run", { name = name, watched = not refusal, ranks = config.mode.ranks or false,
            sample = sample.possible(g, config),
            no_tokens = g.sharded.parameters and text.string("--sample: " .. predictions.DIVIDED),
            ema = config.optimizer.own.ema ~= nil,
            patience = config.best ~= nil and config.best.patience > 0,
            uncounted = text.block((plateau and ", false" or "") .. (config.best and ", false" or "")),
            no_outputs = no_outputs, no_weights = no_weights } },
        { "stopped", { name = name } },
        not refusal and { "start_watching", { name = name } },
        { "main", { name = name, device = own.device,
            filed = g.state_file ~= nil, best = config.best ~= nil, watching = watching(template, name, refusal) } },
    })
end

return main
