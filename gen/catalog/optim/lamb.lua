-- lamb and fused_lamb: Adam's step scaled to the norm of its tensor (You et al., 2020), both as Colossal-AI defines
-- them: fused_lamb first clips by the norm of all gradients, lamb folds the bias correction into the rate.
local common = require "catalog.optim_common"

-- ||w|| / ||u|| of a tensor, 1 if one of them is 0 or the ratio is disabled.
local function trust_ratio(enabled)
    local function if_positive(then_value)
        return where(gt(var "w_squares", 0), where(gt(var "u_squares", 0), then_value, 1), 1)
    end
    return { { "ratio", enabled and if_positive(sqrt(var "w_squares") / sqrt(var "u_squares")) or 1 } }
end

local function norms(u) return { { "w_squares", var "w" * var "w" }, { "u_squares", u * u } } end

optimizer "lamb" {
    doc = "m, v moving averages of g, g^2; u = m / (sqrt(v) + eps) + weight_decay w; w -= lr ||w|| / ||u|| u, the "
        .. "norms of each tensor; bias_correction: lr sqrt(1 - beta2^t) / (1 - beta1^t)",
    fields = {
        common.lr(1e-3, 1e-6, 1), common.betas(0.9, 0.999), common.eps(1e-6, "added to sqrt(v)"),
        common.weight_decay(0, "decoupled: in u"),
        common.flag("adam", false, "the ratio of norms is always 1"),
        common.flag("bias_correction", false, "in the rate, so that it changes eps and the decay too"),
    },
    scope = "tensor", zero = true, cycled = "betas",
    check = common.check_betas,
    state = function() return { "m", "v" } end,
    sums = function(o, w, g, s)
        return {
            statements = {
                { "m", common.average(o.betas[1], s.m, g) },
                { "v", o.betas[2] * s.v + (1 - o.betas[2]) * g * g },
                { "u", s.m / (sqrt(s.v) + o.eps) + o.weight_decay * w },
            },
            sums = norms(var "u"), scales = trust_ratio(not o.adam),
        }
    end,
    update = function(o, w, _, s, lr, t)
        local rate = lr
        if o.bias_correction then
            rate = lr * sqrt(common.bias_correction(o.betas[2], t)) / common.bias_correction(o.betas[1], t)
        end
        return {
            { "u", s.m / (sqrt(s.v) + o.eps) + o.weight_decay * w },
            { "w", w - rate * var "ratio" * var "u" },
        }
    end,
}

-- The step u of an element of fused_lamb from its moments.
local function fused_step(o, w, s, t)
    local root = sqrt(s.v) * common.v_scale(o.betas[2], t, o.bias_correction)
    local u = (1 / common.bias_correction(o.betas[1], t, o.bias_correction)) * s.m / (root + o.eps)
    return o.adam_w_mode and o.weight_decay ~= 0 and u + o.weight_decay * w or u
end

optimizer "fused_lamb" {
    doc = "g /= max(1, ||all g|| / max_grad_norm); m = beta1 m + (1 - beta1) g, v as Adam; u = m^ / (sqrt(v^) + eps) "
        .. "+ weight_decay w; w -= lr ||w|| / ||u|| u, the norms of each tensor, where use_nvlamb or weight_decay",
    fields = {
        common.lr(1e-3, 1e-6, 1), common.flag("bias_correction", true, "m^, v^ are m, v over 1 - beta^t; else m, v"),
        common.betas(0.9, 0.999), common.eps(1e-6), common.weight_decay(0.01, "see adam_w_mode"),
        common.flag("adam_w_mode", true, "decoupled decay; false: an L2 penalty in g"),
        common.flag("grad_averaging", true, "m takes (1 - beta1) g; false: g"),
        { name = "max_grad_norm", type = "num", default = 1.0, min = 0,
            doc = "largest norm of all gradients; there is no off: 0 makes every gradient 0" },
        common.flag("use_nvlamb", false, "the ratio of norms without weight decay too"),
    },
    scope = "tensor", zero = true, cycled = "betas",
    check = common.check_betas,
    state = function() return { "m", "v" } end,
    sums = function(o, w, g, s, _, t)
        local norm, most = var "grad_norm", o.max_grad_norm
        local list = { { "d", g * where(gt(norm, most), most / norm, 1) } }
        if not o.adam_w_mode and o.weight_decay ~= 0 then
            list[1][2] = list[1][2] + o.weight_decay * w
        end
        local d = var "d"
        list[2] = { "m", o.betas[1] * s.m + (o.grad_averaging and (1 - o.betas[1]) * d or d) }
        list[3] = { "v", o.betas[2] * s.v + (1 - o.betas[2]) * d * d }
        list[4] = { "u", fused_step(o, w, s, t) }
        return { statements = list, sums = norms(var "u"),
            scales = trust_ratio(o.use_nvlamb or o.weight_decay ~= 0) }
    end,
    update = function(o, w, _, s, lr, t)
        return { { "u", fused_step(o, w, s, t) }, { "w", w - lr * var "ratio" * var "u" } }
    end,
}
