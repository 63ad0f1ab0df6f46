-- lamb and fused_lamb: Adam's step scaled to the norm of its tensor (You et al., 2020), both as Colossal-AI defines
-- them: fused_lamb first clips by the norm of all gradients, lamb folds the bias correction into the rate.
local common = require "catalog.optim_common"

-- A step is a list of statements whose last is u. `scaled`: whether the tensor's u is multiplied by ||w|| / ||u||, by 1
-- if one of them is 0. Else nothing of the tensor is measured.
local function norms(step, scaled)
    if not scaled then return end
    local function if_positive(then_value)
        return where(gt(var "w_squares", 0), where(gt(var "u_squares", 0), then_value, 1), 1)
    end
    return { statements = step,
        sums = { { "w_squares", var "w" * var "w" }, { "u_squares", var "u" * var "u" } },
        scales = { { "ratio", if_positive(sqrt(var "w_squares") / sqrt(var "u_squares")) } } }
end

-- The update by a step. Where norms were measured, only u is computed again.
local function updated(step, scaled, w, lr)
    local last = { "w", w - (scaled and lr * var "ratio" or lr) * var "u" }
    if scaled then return { step[#step], last } end
    step[#step + 1] = last
    return step
end

local function lamb_step(o, w, g, s)
    return { { "m", common.average(o.betas[1], s.m, g) }, { "v", o.betas[2] * s.v + (1 - o.betas[2]) * g * g },
        { "u", s.m / (sqrt(s.v) + o.eps) + o.weight_decay * w } }
end

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
    sums = function(o, w, g, s) return norms(lamb_step(o, w, g, s), not o.adam) end,
    update = function(o, w, g, s, lr, t)
        if o.bias_correction then
            lr = lr * sqrt(common.bias_correction(o.betas[2], t)) / common.bias_correction(o.betas[1], t)
        end
        return updated(lamb_step(o, w, g, s), not o.adam, w, lr)
    end,
}

-- d is the gradient, clipped by the norm of all.
local function fused_step(o, w, g, s, t)
    local norm, most, d = var "grad_norm", o.max_grad_norm, var "d"
    local clipped = g * where(gt(norm, most), most / norm, 1)
    local decays = o.weight_decay ~= 0
    local root = sqrt(s.v) * common.v_scale(o.betas[2], t, o.bias_correction)
    local u = (1 / common.bias_correction(o.betas[1], t, o.bias_correction)) * s.m / (root + o.eps)
    return { { "d", not o.adam_w_mode and decays and clipped + o.weight_decay * w or clipped },
        { "m", o.betas[1] * s.m + (o.grad_averaging and (1 - o.betas[1]) * d or d) },
        { "v", o.betas[2] * s.v + (1 - o.betas[2]) * d * d },
        { "u", o.adam_w_mode and decays and u + o.weight_decay * w or u } }
end

local function fused_scaled(o) return o.use_nvlamb or o.weight_decay ~= 0 end

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
    sums = function(o, w, g, s, _, t) return norms(fused_step(o, w, g, s, t), fused_scaled(o)) end,
    update = function(o, w, g, s, lr, t)
        return updated(fused_step(o, w, g, s, t), fused_scaled(o), w, lr)
    end,
}
