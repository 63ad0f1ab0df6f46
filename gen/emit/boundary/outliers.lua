-- outliers: train.skip_z skips updates whose gradient norm stands out from those before it. Norms have a running
-- mean and variance; the z-score of a norm is its distance from the mean in standard deviations.
--
--   a = max(1 / (n + 1), 2 / 129)     of n norms so far: all alike at first, then an average over some 128
--   mean += a d, variance = (1 - a) (variance + a d^2), d = norm - mean
--
-- An outlier goes into both as well: a norm that stays where it has jumped to is none for long.
local expr = require "base.expr"
local text = require "base.text"

local outliers = {}

-- Norms that must be known before one can stand out.
local KNOWN = 128

local FIELDS = {
    { "norm_count", "norms so far" }, { "norm_mean", "running, of them" }, { "norm_variance", "running, of them" },
}

--- The fields of the struct step, { name, comment }: doubles.
function outliers.fields(config) return config.train.skip_z and FIELDS or {} end

--- The numbers that a run keeps: { field, initial }.
function outliers.numbers(config)
    local list = {}
    for i, field in ipairs(outliers.fields(config)) do list[i] = { field = field[1], initial = 0.0 } end
    return list
end

--- The lines of the decision about the norm, after s->skip has been set.
function outliers.lines(config)
    if not config.train.skip_z then return text.block("") end
    return text.block(table.concat({
        ("/* an outlier: %g standard deviations above the running mean of the norms */"):format(config.train.skip_z),
        "const double from_mean = s->grad_norm - s->norm_mean;",
        "const double share = fmax(1.0 / (s->norm_count + 1.0), 2.0 / 129.0);",
        ("const bool outlier = s->norm_count >= %d && from_mean > %s * sqrt(s->norm_variance);"):format(KNOWN,
            expr.literal(config.train.skip_z, "f64")),
        "if (!s->skip) {",
        "    s->norm_count += 1;",
        "    s->norm_mean += share * from_mean;",
        "    s->norm_variance = (1.0 - share) * (s->norm_variance + share * from_mean * from_mean);",
        "}",
        "s->skip = s->skip || outlier;",
    }, "\n"))
end

return outliers
