-- weights: the parameters of a form's parts as bytes of F32, in the order that a file format wants.
local ordered = require "base.ordered"

local weights = {}

local SIZE = 4

--- The weight of a linear layer as (out, in), that of the layer with this number of its `times`.
function weights.out_in(m, part, layer)
    local bytes = m:floats(part.weight, layer)
    return part.in_out and host.transposed(bytes, part.width, part.out) or bytes
end

--- The weight of a linear layer as (in, out).
function weights.in_out(m, part, layer)
    local bytes = m:floats(part.weight, layer)
    return part.in_out and bytes or host.transposed(bytes, part.out, part.width)
end

--- The bias of a part, zeros for one without; n: its elements.
function weights.bias(m, part, n, layer)
    return part.bias and m:floats(part.bias, layer) or ("\0"):rep(n * SIZE)
end

--- Queries, keys and values of an attention: an array of three { weight as (out, in), bias, out }.
function weights.projections(m, form, layer)
    local list = form.qkv
    if #list == 3 then
        return ordered.collect(list, function(part)
            return { weight = weights.out_in(m, part, layer), bias = weights.bias(m, part, part.out, layer),
                out = part.out }
        end)
    end
    local part, first = list[1], 0
    local weight, bias = weights.out_in(m, part, layer), weights.bias(m, part, part.out, layer)
    return ordered.collect({ form.heads, form.kv_heads, form.kv_heads }, function(heads)
        local out = heads * form.head_width
        local from = first
        first = first + out
        return { out = out, weight = weight:sub(from * part.width * SIZE + 1, first * part.width * SIZE),
            bias = bias:sub(from * SIZE + 1, first * SIZE) }
    end)
end

--- Whether one of these linear layers has a bias.
function weights.any_bias(...)
    for _, part in ipairs { ... } do
        if part.bias then return true end
    end
    return false
end

return weights
