-- adafactor: Adam's second moment, stored as one factor per row and one per column (Shazeer and Stern, 2018), with
-- the arguments and equations of torch. Hugging Face's differs: lr = nil is the relative step alone (here lr is the
-- upper bound of that step), eps[1] is added to g^2 (here it is the least divisor), there is an optional first moment
-- (beta1, none here), and convolutions are factored along other axes than the last two.
local common = require "catalog.optim_common"

-- 1 - beta2 of update t.
local function new_weight(o, t) return pow(t, o.beta2_decay) end

local function moving_average(o, old, new, t) return old + (new - old) * new_weight(o, t) end

-- The step u of an element before clipping, and the `scale` of a tensor: its relative step size over the clipping of
-- rms(u) to d.
local function tensor_scale(o, g, variance, statements)
    statements[#statements + 1] = { "u", (o.maximize and -g or g) / sqrt(max(variance, o.eps[1] * o.eps[1])) }
    local norm = sqrt(var "u_squares" / var "n")
    return {
        statements = statements, sums = { { "w_squares", var "w" * var "w" }, { "u_squares", var "u" * var "u" } },
        scales = { { "scale", max(o.eps[2], sqrt(var "w_squares" / var "n")) / max(1, norm / o.d) } },
    }
end

-- The update of an element, given the scale of its tensor.
local function apply_step(o, w, g, variance, lr, t)
    local rho = min(lr, 1 / sqrt(t))
    return {
        { "u", (o.maximize and -g or g) / sqrt(max(variance, o.eps[1] * o.eps[1])) },
        { "w", common.decayed(o, w, lr) - rho * var "scale" * var "u" },
    }
end

optimizer "adafactor" {
    doc = "p = t^beta2_decay; matrices of the last two axes: row_var += p (mean of g^2 over the row - row_var), "
        .. "col_var alike, v = row_var col_var / max(mean of row_var, eps1); else v += p (g^2 - v); u = g / "
        .. "sqrt(max(v, eps1^2)), shortened to rms(u) <= d; w -= lr weight_decay w + min(lr, 1 / sqrt(t)) "
        .. "max(eps2, rms(w)) u",
    fields = {
        common.lr(1e-2, 1e-6, 1),
        { name = "beta2_decay", type = "num", default = -0.8, max = 0, doc = "beta2 of update t is 1 - t^beta2_decay" },
        { name = "eps", type = "list", default = { "auto", 1e-3 },
            doc = "least divisor of g, \"auto\": the machine epsilon of the program's type; least rms(w) of the step" },
        { name = "d", type = "num", default = 1, min = 1, doc = "greatest root mean square of u" },
        common.weight_decay(0, "decoupled decay"), common.flag("maximize", false, "climb instead of descend"),
    },
    scope = "tensor", zero = true,
    check = function(o)
        local first, second = table.unpack(o.eps)
        if #o.eps ~= 2 or first ~= "auto" and (type(first) ~= "number" or first < 0)
            or type(second) ~= "number" or second < 0 then
            return "eps takes two numbers >= 0, or \"auto\" for the first"
        end
    end,
    -- replaces "auto" by the epsilon of the precision; returns a complaint about a number that is too small
    settle = function(o, precision)
        local least = precision == "f64" and 2.0 ^ -511 or 2.0 ^ -63
        if o.eps[1] == "auto" then o.eps = { precision == "f64" and 2.0 ^ -52 or 2.0 ^ -23, o.eps[2] } end
        if o.eps[1] < least then
            return ("the first of eps is %g, of which the square is 0 or denormal in %s: expected at least %.3g")
                :format(o.eps[1], precision, least)
        end
    end,
    state = function() return { "variance" } end,
    sums = function(o, _, g, s, _, t)
        return tensor_scale(o, g, var "variance", { { "variance", moving_average(o, s.variance, g * g, t) } })
    end,
    update = function(o, w, g, s, lr, t) return apply_step(o, w, g, s.variance, lr, t) end,
    -- for parameters of rank 2 and more
    matrix = {
        state = function() return { "row_var", "col_var" } end,
        state_shape = function(name, shape)
            local kept = ordered.copy(shape)
            kept[name == "row_var" and #shape or #shape - 1] = 1
            return kept
        end,
        -- `mean` is that of `term` over the row or column in question; for `row`, the factor of a row in v, the
        -- mean of row_var
        factors = function(o, g, _, t)
            return { term = g * g, row_var = moving_average(o, var "row_var", var "mean", t),
                col_var = moving_average(o, var "col_var", var "mean", t),
                row = var "row_var" / max(var "mean", o.eps[1]) }
        end,
        sums = function(o, _, g) return tensor_scale(o, g, var "row" * var "column", {}) end,
        update = function(o, w, g, _, lr, t) return apply_step(o, w, g, var "row" * var "column", lr, t) end,
    },
}
