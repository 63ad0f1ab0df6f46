-- kernels_norm: the template arguments of layernorm and rmsnorm, for both targets.
local c = require "emit.targets.c.c"
local graph = require "graph.graph"
local text = require "base.text"

local norm = { arguments = {} }
local arguments = norm.arguments

local function sizes(node)
    return { real = text.ident("real"), rows = graph.elements(node.size.lead or {}), C = node.size.C }
end

-- Elements of x and dy, which may be of 16 bits, in the words of a template.
local function element(t, spelling) return text.block(c.load(t, spelling)) end

-- The pointers to a row of x and of dy, `at` elements behind their beginnings.
local function heads(node, at)
    local x, dy = c.type_of(node.ins.x).text, c.type_of(node.ins.dy).text
    if x == dy then return text.block(("const %s *row = x + %s, *d = dy + %s;"):format(x, at, at)) end
    return text.block(("const %s *row = x + %s;\nconst %s *d = dy + %s;"):format(x, at, dy, at))
end

function arguments.rmsnorm(_, node, _, dtype, target)
    local list, x, y = sizes(node), node.ins.x, node.outs.y.tensor
    list.eps, list.sqrt = text.number(node.attrs.eps, dtype), target.call("sqrt", dtype)
    if target.folder == "c" then
        list.x_half = graph.is_half(x)
        list.value = text.block(c.stored(y, "row[c] * factor * weight[c]"))
    else
        list.type, list.x = c.type_of(x), element(x, "row[c]")
        list.value = text.block(c.stored(y, list.x.text .. " * factor * weight[c]"))
    end
    return list
end

function arguments.layernorm(kernel, node, op, dtype, target)
    local list, y = arguments.rmsnorm(kernel, node, op, dtype, target), node.outs.y.tensor
    list.shift = text.block(node.ins.bias and " + bias[c]" or "")
    list.y_half, list.value = graph.is_half(y), nil
    if target.folder == "cuda" then
        list.value = text.block(c.stored(y, ("(%s - middle) * factor * weight[c]%s"):format(list.x.text,
            list.shift.text)))
    end
    return list
end

function arguments.norm_dx(kernel, node, _, _, target)
    local list, x, dy = sizes(node), node.ins.x, node.ins.dy
    list.centred, list.store = node.ins.mean ~= nil, c.store(kernel, "y[i]", "value")
    if target.folder == "c" then
        list.x_half, list.dy_half = graph.is_half(x), graph.is_half(dy)
    else
        list.heads, list.x, list.dy = heads(node, "r * C"), element(x, "row[c]"), element(dy, "d[c]")
    end
    return list
end

function arguments.norm_dw(kernel, node, _, _, target)
    local list, x, dy = sizes(node), node.ins.x, node.ins.dy
    list.centred = node.ins.mean ~= nil
    list.init = text.block(kernel.can_add and "add ? y[j0 + j] : 0" or "0")
    if target.folder == "c" then
        list.heads, list.x, list.dy = heads(node, "(size_t)i * C + j0"), element(x, "row[j]"), element(dy, "d[j]")
    else
        list.x, list.dy = element(x, "x[i * C + j]"), element(dy, "dy[i * C + j]")
    end
    return list
end

return norm
