-- scaler: the loss scale of a spec: its defaults and the consistency of its fields.
local check = require "base.check"
local diag = require "base.diag"
local ordered = require "base.ordered"
local words = require "spec.words"

local scaler = {}

-- The greatest scale without a limit: f32 still divides by it. From 2^126 on the inverse is a denormal number, which
-- processors read as 0, and devices round.
local MOST = 2.0 ^ 100

-- preset = "torch": the defaults of torch's GradScaler().
local PRESETS = { torch = { growth_interval = 2000, hysteresis = 1, min_scale = "none", max_scale = "none" } }

-- Refuses other fields beside `static`.
local function check_static(args, where)
    for name in ordered.each(args) do
        if name ~= "static" then
            diag.fail(where.locate(name), ("scaler: %s beside static: a static scale never moves, expected one "
                .. "of the two"):format(name), {})
        end
    end
end

local function check_limits(f, args, where)
    local low = f.min_scale == "none" and 0 or f.min_scale
    local high = f.max_scale == "none" and MOST or f.max_scale
    if low > high then
        diag.fail(where.locate(args.min_scale and "min_scale" or "max_scale"),
            ("scaler: min_scale is %g and max_scale %g, expected min_scale <= max_scale"):format(low, high), {})
    end
    if f.initial_scale < low or f.initial_scale > high then
        local given = args.initial_scale and "initial_scale" or f.initial_scale < low and "min_scale" or "max_scale"
        diag.fail(where.locate(given), ("scaler: initial_scale is %g, expected %g..%g: from min_scale to max_scale")
            :format(f.initial_scale, low, high), {})
    end
    return low, high
end

--- The scaler of a spec: { static = number } or { initial, floor, ceiling, growth, backoff, interval, hysteresis };
--- nil for none. entry: { args, at } of the word, or nil; train, train_at: fields and place of the word train.
function scaler.read(entry, precision, train, train_at)
    if precision == "bf16" and entry then
        diag.fail(entry.at, 'scaler: precision "bf16" has the exponents of f32, so gradients neither overflow nor '
            .. "vanish: expected no scaler", {})
    end
    if not entry and precision ~= "f16" then return nil end
    if train.on_nonfinite == "ignore" then
        diag.fail(diag.field(train_at, "on_nonfinite"), 'train: on_nonfinite is "ignore", but with a loss scale an '
            .. 'overflow is skipped: expected "skip", or "stop" for one at the least scale', {})
    end
    local args, where = entry and entry.args or {}, check.context("scaler", entry and entry.at)
    local f = check.fields(words.find("scaler").fields, args, where)
    if f.static then
        check_static(args, where)
        return { static = f.static }
    end
    for name, value in ordered.each(f.preset and PRESETS[f.preset] or {}) do
        if args[name] == nil then f[name] = value end
    end
    local low, high = check_limits(f, args, where)
    return { initial = f.initial_scale, floor = low, ceiling = high, growth = f.growth_factor,
        backoff = f.backoff_factor, interval = f.growth_interval, hysteresis = f.hysteresis }
end

return scaler
