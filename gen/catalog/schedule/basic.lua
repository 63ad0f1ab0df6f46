-- basic: schedules without stages, as closed forms. `factor(f, t, total, base)` is the rate after t of `total`
-- updates, both counted from the end of the warm-up. After the end the last rate holds.
local common = require "catalog.schedule_common"

schedule "constant" {
    doc = "the base rate, after a linear warm-up if one is given",
    fields = { common.warmup },
    factor = function(_, _, _, base) return base end,
}

schedule "constant_with_warmup" {
    doc = "the base rate after a linear warm-up: Hugging Face's name of constant",
    fields = { { name = "warmup", type = "num", required = true, min = 0, doc = common.warmup.doc } },
    factor = function(_, _, _, base) return base end,
}

schedule "cosine" {
    doc = "min + (base - min) (1 + cos(2 pi cycles t / total)) / 2, after a linear warm-up; its last "
        .. "value past the end; Colossal-AI's CosineAnnealingWarmupLR",
    fields = { common.warmup,
        { name = "min", type = "num", default = 0, min = 0, doc = "the last rate" },
        { name = "cycles", type = "num", default = 0.5, above = 0, doc = "waves: a half one ends at min" },
        common.total },
    factor = function(f, t, total, base)
        return f.min + (base - f.min) * 0.5 * (1 + cos(2 * math.pi * f.cycles * common.part(t, total)))
    end,
}

schedule "cosine_with_restarts" {
    doc = "as cosine, restarted `cycles` times: min + (base - min) (1 + cos(pi (cycles t / total mod 1))) / 2",
    fields = { common.warmup,
        { name = "min", type = "num", default = 0, min = 0, doc = "the last rate of each piece" },
        { name = "cycles", type = "int", default = 1, min = 1, doc = "how many pieces" }, common.total },
    factor = function(f, t, total, base)
        local at = f.cycles * common.part(t, total)
        local wave = f.min + (base - f.min) * 0.5 * (1 + cos(math.pi * (at - floor(at))))
        return where(ge(t, total), f.min, wave)
    end,
}

schedule "linear" {
    doc = "min + (base - min) (1 - t / total), after a linear warm-up; min past the end",
    fields = { common.warmup, { name = "min", type = "num", default = 0, min = 0, doc = "the last rate" },
        common.total },
    factor = function(f, t, total, base) return f.min + (base - f.min) * (1 - common.part(t, total)) end,
}

schedule "linear_warmup" {
    doc = "base (t + 1) / (warmup + 1), then base (1 - t / total); 0 past the end; Colossal-AI's LinearWarmupLR",
    fields = { common.warmup, common.total },
    compat = { negative = "goes on below 0 past the end" },
    ramp = function(_, t, warmup, base) return base * ((t + 1) / (warmup + 1)) end,
    factor = function(f, t, total, base)
        local left = (total - t) / total
        return base * (f.compat.negative and left or max(left, 0))
    end,
}

schedule "polynomial" {
    doc = "(base - end_lr) (1 - t / total)^power + end_lr, after a linear warm-up; Colossal-AI's PolynomialLR and "
        .. "PolynomialWarmupLR; Hugging Face has end_lr = 1e-7",
    fields = { common.warmup, { name = "end_lr", type = "num", default = 1e-4, min = 0, doc = "the last rate" },
        { name = "power", type = "num", default = 1, above = 0, doc = "the exponent" }, common.total },
    factor = function(f, t, total, base)
        return (base - f.end_lr) * pow(1 - common.part(t, total), f.power) + f.end_lr
    end,
}

schedule "inverse_sqrt" {
    doc = "base / sqrt(1 + t / timescale) behind a linear warm-up, t from its end",
    fields = { common.warmup,
        { name = "timescale", type = "num", above = 0, doc = "default: the warm-up, or 10000 without one" } },
    factor = function(f, t, _, base)
        local scale, behind = f.timescale, f.warmup_length
        if not scale and expr.is(behind) then scale = max(behind, 1) end
        scale = scale or behind > 0 and behind or 10000
        return base / sqrt((t + scale) / scale)
    end,
}

schedule "wsd" {
    doc = "warm-up, stable, decay: the base rate, and over the last `decay` of the run down to min",
    fields = { common.warmup,
        { name = "decay", type = "num", default = 0.1, above = 0,
            doc = "length of the decay; below 1 a fraction of what follows the warm-up" },
        { name = "form", type = "str", default = "linear", values = { "linear", "cos", "1-sqrt" },
            doc = "how it falls" },
        { name = "min", type = "num", default = 0, min = 0, doc = "the last rate" }, common.total },
    check_warmup = function(f, warmup, length)
        if f.decay > length - warmup then
            return ("decay is %g, but %d updates or epochs follow the warm-up"):format(f.decay, length - warmup)
        end
    end,
    factor = function(f, t, total, base)
        local length = f.decay < 1 and f.decay * total or f.decay
        local p = min(max((t - (total - length)) / length, 0), 1)
        if f.form == "1-sqrt" then return f.min + (base - f.min) * (1 - sqrt(p)) end
        return common.between(f.form, base, f.min, p)
    end,
}

schedule "flat_annealing" {
    doc = "the base rate for floor(pct_start total), then a half wave to eta_min; after a linear warm-up; "
        .. "Colossal-AI's FlatAnnealingLR and FlatAnnealingWarmupLR",
    fields = { common.warmup,
        { name = "pct_start", type = "num", default = 0.72, min = 0, max = 1, doc = "the flat part" },
        common.eta_min(), common.total },
    factor = function(f, t, total, base)
        local flat = floor(total * f.pct_start)
        local p = min((t - flat) / max(total - flat, 1), 1)
        return where(lt(t, flat), base, common.between("cos", base, f.eta_min, p))
    end,
}
