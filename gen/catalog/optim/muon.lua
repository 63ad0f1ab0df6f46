-- muon: momentum, orthogonalised matrix by matrix with Newton-Schulz steps (Jordan et al., 2024), with the arguments
-- and equations of torch: the momentum is a moving average, weight decay is decoupled. torch computes the
-- Newton-Schulz steps in bf16, this rule in the program's type.
local common = require "catalog.optim_common"

-- adjust_lr_fn: the factor of the rate of a matrix, by its shape.
local RATE_FACTORS = {
    original = function(rows, columns) return math.sqrt(math.max(1, rows / columns)) end,
    match_rms_adamw = function(rows, columns) return 0.2 * math.sqrt(math.max(rows, columns)) end,
    spectral_unclamped = function(rows, columns) return math.sqrt(rows / columns) end,
}

-- The value that is orthogonalised, from the updated buffer.
local function direction(o, g) return o.nesterov and common.average(o.momentum, var "buf", g) or var "buf" end

optimizer "muon" {
    doc = "matrices: buf = momentum buf + (1 - momentum) g; x = (1 - momentum) g + momentum buf (nesterov), or buf; "
        .. "x /= ||x||; ns_steps times x = (a I + b x x' + c (x x')^2) x; w = (1 - lr weight_decay) w - lr r x, "
        .. "r = sqrt(max(1, rows / columns)); axes behind the first are columns; what is no matrix: see rest",
    fields = {
        common.lr(1e-3, 1e-5, 1), common.weight_decay(0.1, "decoupled decay"),
        { name = "momentum", type = "num", default = 0.95, min = 0, below = 1, doc = "decay of the buffer" },
        common.flag("nesterov", true, "look-ahead momentum"),
        { name = "ns_coefficients", type = "list", default = { 3.4445, -4.7750, 2.0315 },
            doc = "a, b and c of the iteration" },
        { name = "eps", type = "num", default = 1e-7, above = 0, doc = "least divisor of x" },
        { name = "ns_steps", type = "int", default = 5, min = 1, max = 99, doc = "steps of the iteration" },
        { name = "adjust_lr_fn", type = "str", default = "original", values = ordered.keys(RATE_FACTORS),
            doc = "r: sqrt(max(1, rows / columns)), 0.2 sqrt(max(rows, columns)) or sqrt(rows / columns)" },
    },
    scope = "matrix", least_rank = 2, rest = "adamw", cycled = "momentum",
    -- g = 0 of an element does not keep it from moving: its whole matrix moves it
    zero = false,
    check = function(o)
        local numbers = ordered.collect(o.ns_coefficients, function(x) return type(x) == "number" and x or nil end)
        if #numbers ~= 3 or #o.ns_coefficients ~= 3 then return "ns_coefficients takes three numbers" end
    end,
    state = function() return { "buf" } end,
    sums = function(o, _, g, s)
        return {
            statements = { { "buf", common.average(o.momentum, s.buf, g) }, { "d", direction(o, g) } },
            sums = { { "squares", var "d" * var "d" } },
            scales = { { "unit", 1 / max(sqrt(var "squares"), o.eps) } },
        }
    end,
    -- x before the first Newton-Schulz step, of norm 1
    start = function(o, _, g) return { { "x", direction(o, g) * var "unit" } } end,
    adjust = function(o, rows, columns) return RATE_FACTORS[o.adjust_lr_fn](rows, columns) end,
    update = function(o, w, _, _, lr) return { { "w", common.decayed(o, w, lr) - lr * var "adjust" * var "x" } } end,
}
