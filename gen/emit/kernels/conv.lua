-- kernels_conv: template arguments of convolutions that all targets share.
local c_text = require "emit.targets.c_text"
local text = require "base.text"

local conv = { arguments = {} }
local arguments = conv.arguments

-- "{place, places, tap, taps, from}".
local function axis_text(axis)
    return ("{%d, %d, %d, %d, %d}"):format(axis.place, axis.places, axis.tap, axis.taps, axis.from)
end

--- A part of the places as a C initializer; `number` is a count that the target computes for it.
function conv.part_text(part, number)
    return ("{%s, %s, %d, %d}"):format(axis_text(part.h), axis_text(part.w), part.weight, number)
end

local function most_taps(parts)
    local most = 1
    for _, part in ipairs(parts) do most = math.max(most, part.h.taps * part.w.taps) end
    return most
end

-- Sizes and strides of the planes that are read; g: op.gather's table.
local function reading(g)
    return { B = g.B, groups = g.groups, height = g.height, width = g.width, read_h = g.read_step[1],
        read_w = g.read_step[2], tap_h = g.tap_step[1], tap_w = g.tap_step[2], taps = most_taps(g.parts),
        channels = g.channels // g.groups, out = g.out // g.groups, rows = g.rows, columns = g.columns }
end

function arguments.conv2d(kernel, node, op)
    local g = op.gather(node)
    local list = reading(g)
    list.x = text.ident(node.ins.x and "x" or "dy")
    list.place_h, list.place_w = g.place_step[1], g.place_step[2]
    list.bias = text.block(node.ins.bias and " + bias[g * OUT + i]" or "")
    list.store = c_text.store(kernel, "y[k]", "value")
    return list
end

arguments.conv2d_dx = arguments.conv2d

function arguments.conv2d_turned(_, node)
    local a, parts = node.attrs, node.parts
    return { groups = a.groups, channels = a.channels // a.groups, out = a.out // a.groups,
        window_h = a.window[1], window_w = a.window[2], step_h = parts[1].h.tap_step, step_w = parts[1].w.tap_step }
end

--- `d`: the text that reads an element of dy.
function conv.weight_gradient(node, op, d)
    local list = reading(op.gather(node))
    list.partials, list.d = node.size.N, text.block(c_text.load(node.ins.dy, d))
    return list
end

function arguments.conv2d_dw_sum(kernel, node)
    local s = node.size
    return { partials = s.N, groups = s.G, terms = s.K, out = s.L, store = c_text.store(kernel, "y[i]", "value") }
end

return conv
