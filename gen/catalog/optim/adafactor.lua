-- adafactor: Adam's second moment from what its rows and columns are (Shazeer and Stern, 2018), with torch's
-- arguments and torch's equations. Where others differ, Hugging Face's among them: there lr = nil gives the relative
-- step alone, here lr is its greatest value; there eps[1] is added to g^2, here it is the least divisor; they may
-- take a first moment (beta1), this rule has none; they factor convolutions along other axes than the last two.
local moments = require "catalog.moments"

-- 1 - beta2 of update t.
local function weight(o, t) return pow(t, o.beta2_decay) end

local function follow(o, old, new, t) return old + (new - old) * weight(o, t) end

-- The step of an element before it is cut, and the numbers of its tensor that cut and scale it.
local function sums_of(o, g, variance, statements)
    statements[#statements + 1] = { "u", (o.maximize and -g or g) / sqrt(max(variance, o.eps[1] * o.eps[1])) }
    local norm = sqrt(var "u_squares" / var "n")
    return {
        statements = statements, sums = { { "w_squares", var "w" * var "w" }, { "u_squares", var "u" * var "u" } },
        scales = { { "scale", max(o.eps[2], sqrt(var "w_squares" / var "n")) / max(1, norm / o.d) } },
    }
end

local function step_of(o, w, g, variance, lr, t)
    local rho = min(lr, 1 / sqrt(t))
    return {
        { "u", (o.maximize and -g or g) / sqrt(max(variance, o.eps[1] * o.eps[1])) },
        { "w", moments.decayed(o, w, lr) - rho * var "scale" * var "u" },
    }
end

optimizer "adafactor" {
    doc = "p = t^beta2_decay; matrices of the last two axes: row_var += p (mean of g^2 over the row - row_var), "
        .. "col_var alike, v = row_var col_var / max(mean of row_var, eps1); else v += p (g^2 - v); u = g / "
        .. "sqrt(max(v, eps1^2)), shortened to rms(u) <= d; w -= lr weight_decay w + min(lr, 1 / sqrt(t)) "
        .. "max(eps2, rms(w)) u",
    fields = {
        moments.lr(1e-2),
        { name = "beta2_decay", type = "num", default = -0.8, max = 0, doc = "beta2 of update t is 1 - t^beta2_decay" },
        { name = "eps", type = "list", default = { "auto", 1e-3 },
            doc = "least divisor of g, \"auto\": what the program's numbers differ by at 1; least size of a tensor" },
        { name = "d", type = "num", default = 1, min = 1, doc = "greatest root mean square of u" },
        moments.weight_decay(0, "decoupled decay"), moments.flag("maximize", false, "climb instead of descend"),
    },
    scope = "tensor", zero = true,
    check = function(o)
        local first, second = table.unpack(o.eps)
        if #o.eps ~= 2 or first ~= "auto" and (type(first) ~= "number" or first < 0)
            or type(second) ~= "number" or second < 0 then
            return "eps takes two numbers >= 0, or \"auto\" for the first"
        end
    end,
    -- what "auto" is in this precision; what is wrong with another number
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
        return sums_of(o, g, var "variance", { { "variance", follow(o, s.variance, g * g, t) } })
    end,
    update = function(o, w, g, s, lr, t) return step_of(o, w, g, s.variance, lr, t) end,
    -- parameters of rank 2 and more
    matrix = {
        state = function() return { "row_var", "col_var" } end,
        state_shape = function(name, shape)
            local kept = ordered.copy(shape)
            kept[name == "row_var" and #shape or #shape - 1] = 1
            return kept
        end,
        -- of the mean of `term` over a row, a column; `row`: what a row's factor is, of its row_var and the mean of all
        factors = function(o, g, _, t)
            return { term = g * g, row_var = follow(o, var "row_var", var "mean", t),
                col_var = follow(o, var "col_var", var "mean", t), row = var "row_var" / max(var "mean", o.eps[1]) }
        end,
        sums = function(o, _, g) return sums_of(o, g, var "row" * var "column", {}) end,
        update = function(o, w, g, _, lr, t) return step_of(o, w, g, var "row" * var "column", lr, t) end,
    },
}
