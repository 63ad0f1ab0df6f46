-- basic: learning-rate schedules as closed forms. `factor(f, t, total, base)` is the value used by
-- update t (from 0) of `total`, given the base rate.

schedule "constant" {
    doc = "the base rate, after a linear warm-up if one is given",
    fields = {
        { name = "warmup", type = "num", default = 0, min = 0,
          doc = "updates of linear warm-up; below 1 a fraction of all" },
    },
    factor = function(_, _, _, base) return base end,
}

schedule "cosine" {
    doc = "min + (base - min) (1 + cos(pi t / total)) / 2, after a linear warm-up; min past the end",
    fields = {
        { name = "warmup", type = "num", default = 0, min = 0,
          doc = "updates of linear warm-up; below 1 a fraction of all" },
        { name = "min", type = "num", default = 0, min = 0, doc = "the last rate" },
        { name = "total", type = "int", min = 1, doc = "length in updates; default: the run's" },
    },
    factor = function(f, t, total, base)
        return f.min + (base - f.min) * 0.5 * (1 + cos(math.pi * min(t / total, 1)))
    end,
}
