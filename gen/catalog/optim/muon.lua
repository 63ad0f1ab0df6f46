-- muon: momentum whose matrices are made orthogonal (Jordan and others, 2024), with torch's arguments and torch's
-- equations: the momentum is an average, and weight decay is decoupled. torch computes the iteration in bf16, this
-- rule in the program's type.
local moments = require "catalog.moments"

-- What the rate of a matrix is multiplied with.
local ADJUST = {
    original = function(rows, columns) return math.sqrt(math.max(1, rows / columns)) end,
    match_rms_adamw = function(rows, columns) return 0.2 * math.sqrt(math.max(rows, columns)) end,
    spectral_unclamped = function(rows, columns) return math.sqrt(rows / columns) end,
}

-- What is made orthogonal, of the buffer that has taken g.
local function direction(o, g) return o.nesterov and moments.average(o.momentum, var "buf", g) or var "buf" end

optimizer "muon" {
    doc = "matrices: buf = momentum buf + (1 - momentum) g; x = (1 - momentum) g + momentum buf (nesterov), or buf; "
        .. "x /= ||x||; ns_steps times x = (a I + b x x' + c (x x')^2) x; w = (1 - lr weight_decay) w - lr r x, "
        .. "r = sqrt(max(1, rows / columns)); axes behind the first are columns; what is no matrix: see rest",
    fields = {
        moments.lr(1e-3), moments.weight_decay(0.1, "decoupled decay"),
        { name = "momentum", type = "num", default = 0.95, min = 0, below = 1, doc = "decay of the buffer" },
        moments.flag("nesterov", true, "look-ahead momentum"),
        { name = "ns_coefficients", type = "list", default = { 3.4445, -4.7750, 2.0315 },
            doc = "a, b and c of the iteration" },
        { name = "eps", type = "num", default = 1e-7, above = 0, doc = "least divisor of x" },
        { name = "ns_steps", type = "int", default = 5, min = 1, max = 99, doc = "steps of the iteration" },
        { name = "adjust_lr_fn", type = "str", default = "original", values = ordered.keys(ADJUST),
            doc = "r: sqrt(max(1, rows / columns)), 0.2 sqrt(max(rows, columns)) or sqrt(rows / columns)" },
    },
    scope = "matrix", least_rank = 2, rest = "adamw", cycled = "momentum",
    -- an element is moved by the others of its matrix; rows and columns of zeros stay
    zero = false,
    check = function(o)
        local numbers = ordered.collect(o.ns_coefficients, function(x) return type(x) == "number" and x or nil end)
        if #numbers ~= 3 or #o.ns_coefficients ~= 3 then return "ns_coefficients takes three numbers" end
    end,
    state = function() return { "buf" } end,
    sums = function(o, _, g, s)
        return {
            statements = { { "buf", moments.average(o.momentum, s.buf, g) }, { "d", direction(o, g) } },
            sums = { { "squares", var "d" * var "d" } },
            scales = { { "unit", 1 / max(sqrt(var "squares"), o.eps) } },
        }
    end,
    -- x before the iteration, of unit norm
    start = function(o, _, g) return { { "x", direction(o, g) * var "unit" } } end,
    adjust = function(o, rows, columns) return ADJUST[o.adjust_lr_fn](rows, columns) end,
    update = function(o, w, _, _, lr) return { { "w", moments.decayed(o, w, lr) - lr * var "adjust" * var "x" } } end,
}
