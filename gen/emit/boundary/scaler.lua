-- scaler: the loss scale of a program. The seed of the loss is scale / nominal weight, so the gradient is so many
-- times too large until the boundary divides it, in the factor that also makes the mean of it. A moving scale's
-- numbers are fields of the struct step; it moves behind everything else that is decided about an update, so
-- a cycle has one scale. Without the word, nothing of it is in a program.
local clip = require "emit.boundary.clip"
local expr = require "base.expr"
local text = require "base.text"

local scaler = {}

local function number(x) return expr.literal(x, "f64") end

local function block_of(list) return text.block(table.concat(list, "\n")) end

--- Whether the scale follows the gradient.
function scaler.moves(config) return config.scaler ~= nil and config.scaler.static == nil end

--- The fields of the struct step, { type, names, comment, how many }: doubles and integers.
function scaler.rows(config)
    if not scaler.moves(config) then return {} end
    return {
        { "double", "scale", "of the loss: in this cycle, behind a boundary in the next", 1 },
        { "double", "last_scale", "in the last cycle", 1 },
        { "integer", "growth_step, hysteresis_step", "see ga_scaler_take", 2 },
    }
end

--- The scale of the present cycle, where `step` stands before its fields: "s->"; "1" without.
function scaler.present(config, step)
    if not config.scaler then return "1" end
    return scaler.moves(config) and step .. "scale" or number(config.scaler.static)
end

--- The same of the cycle that has just ended.
function scaler.last(config, step)
    return scaler.moves(config) and step .. "last_scale" or scaler.present(config, step)
end

--- The divisor of a cycle's mean beside its weight: " / s->scale", or nothing.
function scaler.divisor(config)
    return text.block(config.scaler and " / " .. scaler.present(config, "s->") or "")
end

--- The words before a gradient of the loss and behind a mean weight in comments.
function scaler.times(config) return config.scaler and "scale times the " or "" end
function scaler.over(config) return config.scaler and " / scale" or "" end

--- The factor of a full cycle's mean, in words.
function scaler.full_text(config) return text.block(config.scaler and "1 / scale" or "1") end

--- The settings of runtime/loop/scaler.h, by field.
local function settings(config)
    local c = config.scaler
    return { { "growth_factor", number(c.growth) }, { "backoff_factor", number(c.backoff) },
        { "min_scale", number(c.floor) }, { "max_scale", number(c.ceiling) },
        { "growth_interval", tostring(c.interval) }, { "hysteresis", tostring(c.hysteresis) } }
end

--- The text before decide() of the C target, and its includes.
function scaler.definition(config)
    if not scaler.moves(config) then return text.block("") end
    local list = {}
    for i, field in ipairs(settings(config)) do list[i] = (".%s = %s"):format(field[1], field[2]) end
    return block_of { "/* How the scale of the loss moves. */", "static const ga_scaler SCALER = {",
        "    " .. table.concat(list, ", ", 1, 4) .. ",", "    " .. table.concat(list, ", ", 5) .. ",", "};" }
end

--- The arguments of the device's ga_scaler_take.
function scaler.device(config)
    local arguments = {}
    for _, field in ipairs(settings(config)) do
        arguments[field[1]] = text.block(field[2])
    end
    return arguments
end

--- The end of decide(): the scale of the next cycle and the seed of its loss.
function scaler.moved(config, target)
    if not scaler.moves(config) then return text.block("") end
    return block_of {
        "s->last_scale = s->scale;",
        "if (s->nonfinite > 0 || s->weight > 0) /* a cycle without a target says nothing */",
        ("    ga_scaler_take(%ss->nonfinite > 0, &s->scale, &s->growth_step, &s->hysteresis_step);"):format(
            target.scaler_argument),
        ("s->seed = (real)(s->scale / %s);"):format(target.nominal),
    }
end

--- The lines of model.c: how a run starts, what a checkpoint says, what is taken from one; `scale` and
--- `last_scale`: what the gradient carries inside a cycle and behind one.
function scaler.lines(config)
    local seed = ("m->step.seed = (real)(%s / m->nominal);"):format(scaler.present(config, "m->step."))
    local started, saved, loaded = { seed }, ".scale = 1,", {}
    if scaler.moves(config) then
        started = { ("m->step.scale = m->step.last_scale = %s;"):format(number(config.scaler.initial)), seed }
        saved = ".scaler = GA_DYNAMIC_SCALE, .scale = m->step.scale,\n"
            .. "        .growth_step = m->step.growth_step, .hysteresis_step = m->step.hysteresis_step,"
        loaded = { "m->step.scale = m->step.last_scale = s.scale;", "m->step.growth_step = s.growth_step;",
            "m->step.hysteresis_step = s.hysteresis_step;", seed }
    elseif config.scaler then
        saved = (".scaler = GA_STATIC_SCALE, .scale = %s,"):format(number(config.scaler.static))
    end
    return { scale_started = block_of(started), scale_saved = text.block(saved), scale_loaded = block_of(loaded),
        scaled = config.scaler ~= nil, overflows = text.ident(tostring(config.scaler ~= nil
            or config.train.on_nonfinite == "skip")),
        scale = text.block(scaler.present(config, "m->step.")),
        last_scale = text.block(clip.writes(config) and "1" or scaler.last(config, "m->step.")) }
end

--- Whether a gradient that is not finite ends the run, and then the condition and what is said of it.
function scaler.stops(config)
    local stops, least = config.train.on_nonfinite == "stop", config.scaler and config.scaler.floor or 0
    if not config.scaler then
        return { stops_at_nonfinite = stops, hopeless = text.block("m->step.nonfinite > 0"), at_least = text.block("") }
    end
    return { stops_at_nonfinite = stops and least > 0,
        hopeless = text.block(("m->step.nonfinite > 0 && m->step.last_scale <= %s"):format(number(least))),
        at_least = text.block(('"the scale of the loss falls no further than %g; "'):format(least)) }
end

return scaler
