-- gradients: what the model's files say of the gradient of a cycle where it is stored in 16 bits: a type, a struct of
-- addresses and places of its own. Otherwise it has those of the parameters.
local c_text = require "emit.targets.c_text"
local text = require "base.text"

local gradients = {}

--- The 16-bit type of a program's activations or gradients, or nil: there is one at most.
function gradients.half(g) return g.half or g.half_sums and "bf16" or nil end

--- The same of a program that is only configured.
function gradients.half_of(config)
    local f = config.precision
    return (f == "bf16" or f == "f16") and f or config.accum == "bf16" and "bf16" or nil
end

local function lines(list) return text.block(table.concat(list, "\n")) end

--- More arguments of model.h; params: in the order of the flat space.
function gradients.header(g, target, params)
    local half, fields = gradients.half(g), {}
    for i, p in ipairs(g.half_sums and params or {}) do
        fields[i] = target.gradient_field(c_text.field(p.value))
    end
    return { half = half and text.ident(half) or false, half_sums = g.half_sums, gradient_fields = lines(fields) }
end

--- More arguments of model.c.
function gradients.model(g, target, params)
    local places = {}
    for i, p in ipairs(g.half_sums and params or {}) do
        places[i] = target.gradient_place(c_text.field(p.value), p.flat.offset)
    end
    return { half_sums = g.half_sums, gradient_places = lines(places), gradient_dtype = gradients.dtype(g),
        gradient_form = text.ident(g.half_sums and "gradients" or "parameters") }
end

--- The ga_dtype of the gradient.
function gradients.dtype(g) return text.ident(g.half_sums and "GA_BF16" or "REAL") end

return gradients
