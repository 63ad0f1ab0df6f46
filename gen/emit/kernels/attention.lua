-- kernels_attention: the template arguments of attention and of what belongs to it, as far as all targets have them.
local c_text = require "emit.targets.c_text"
local text = require "base.text"

local attention = { arguments = {} }
local arguments = attention.arguments

-- Sizes and strides of the rows of q, k and v.
local function sizes(node, dtype, target)
    local a, s = node.attrs, node.size
    return { B = s.B, T = s.T, heads = a.heads, d = a.d, group = a.heads // a.kv_heads, q_row = s.Q,
        k_row = s.K or s.Q, packed = not node.ins.key, dropout = a.dropout > 0,
        drop = text.number(a.dropout, "f64"), name = text.string(a.name or ""),
        scale = text.number(1 / math.sqrt(a.d), dtype), exp = target.call("exp", dtype),
        type = c_text.type_of(node.ins.query) }
end

function arguments.attend(_, node, _, dtype, target)
    local list = sizes(node, dtype, target)
    list.stop, list.log = text.block(node.attrs.causal and "i0 + n" or "T"), target.call("log", dtype)
    return list
end

function arguments.attend_dx(_, node, _, dtype, target)
    local list = sizes(node, dtype, target)
    list.first = text.block(node.attrs.causal and "j0" or "0")
    return list
end

function arguments.attend_delta(_, node)
    return { rows = node.size.B * node.size.T, heads = node.attrs.heads, d = node.attrs.d }
end

--- `first`, `second`: how the places of a pair are spelled.
function attention.rotary(kernel, node, first, second)
    local a = node.attrs
    return { x_low = text.block(c_text.load(node.ins.x, ("x[%s]"):format(first))),
        x_high = text.block(c_text.load(node.ins.x, ("x[%s]"):format(second))), B = node.size.B,
        T = node.size.T, heads = a.heads, d = a.d, base = text.number(a.base, "f64"),
        sign = text.block(a.back and "-" or ""),
        low = c_text.store(kernel, ("y[%s]"):format(first), "low"),
        high = c_text.store(kernel, ("y[%s]"):format(second), "high") }
end

return attention
