-- conv: the template arguments of convolutions, as far as all targets have them.
local c_text = require "emit.targets.c_text"
local text = require "base.text"

local conv = { arguments = {} }
local arguments = conv.arguments

--- A part of the places as a C initializer; `number` is a count that the target computes for it.
function conv.part_text(part, number)
    local function axis(x) return ("{%d, %d, %d, %d, %d}"):format(x.place, x.places, x.tap, x.taps, x.from) end
    return ("{%s, %s, %d, %d}"):format(axis(part.h), axis(part.w), part.weight, number)
end

--- The same with the names of fields, in two lines; C++ before 2020 has none.
function conv.named_part_text(part, number)
    local function axis(x)
        local form = "{.place = %d, .places = %d, .tap = %d, .taps = %d, .from = %d}"
        return form:format(x.place, x.places, x.tap, x.taps, x.from)
    end
    return ("{.h = %s,\n .w = %s, .weight = %d, .tiles = %d}"):format(axis(part.h), axis(part.w), part.weight, number)
end

local function most_taps(parts)
    local most = 1
    for _, part in ipairs(parts) do most = math.max(most, part.h.taps * part.w.taps) end
    return most
end

--- shape: of a product over planes; g is op.gather's table.
---   B, groups                  images, groups of planes
---   channels, height, width    planes of a group that are read, and their extents
---   out, rows, columns         planes of a group that come out, and their extents
---   taps                       of a place, at most
function conv.shape(g)
    return { B = g.B, groups = g.groups, channels = g.channels // g.groups, height = g.height, width = g.width,
        out = g.out // g.groups, rows = g.rows, columns = g.columns, taps = most_taps(g.parts) }
end

-- step: in rows (_h) and columns (_w) of a plane.
--   place    between neighbouring places of a part of the result
--   read     between the places that their first taps read
--   tap      between the places that neighbouring taps read
local function step_of(g)
    return { place_h = g.place_step[1], place_w = g.place_step[2], read_h = g.read_step[1], read_w = g.read_step[2],
        tap_h = g.tap_step[1], tap_w = g.tap_step[2] }
end

-- "3 x 3 convolution, stride 2, padding 1, 4 groups"
local function named(a)
    local words = { ("%d x %d convolution"):format(a.window[1], a.window[2]) }
    for _, field in ipairs { { "stride", 1 }, { "padding", 0 }, { "dilation", 1 } } do
        local name, high, wide = field[1], a[field[1]][1], a[field[1]][2]
        if high ~= wide then words[#words + 1] = ("%s %d x %d"):format(name, high, wide)
        elseif high ~= field[2] then words[#words + 1] = ("%s %d"):format(name, high) end
    end
    if a.groups > 1 then words[#words + 1] = a.groups .. " groups" end
    return table.concat(words, ", ")
end

-- shape.does: in words, for the kernel's comment.
function arguments.conv2d(kernel, node, op)
    local g = op.gather(node)
    local shape, of = conv.shape(g), node.op == "conv2d" and "a " or "the gradient, by its input, of a "
    shape.does = text.comment(of .. named(node.attrs))
    return { shape = shape, step = step_of(g), x = text.ident(node.ins.x and "x" or "dy"),
        bias = text.block(node.ins.bias and " + bias[g * OUT + i]" or ""),
        store = c_text.store(kernel, "y[k]", "value") }
end

arguments.conv2d_dx = arguments.conv2d

-- shape: of the weight, for each group out x channels planes of window_h x window_w taps; step: the taps of it from one
-- tap of a part to the next.
function arguments.conv2d_turned(_, node)
    local a, parts = node.attrs, node.parts
    return { shape = { groups = a.groups, channels = a.channels // a.groups, out = a.out // a.groups,
        window_h = a.window[1], window_w = a.window[2] },
        step = { tap_h = parts[1].h.tap_step, tap_w = parts[1].w.tap_step } }
end

--- The channels, taps and outputs (as in `shape`) of the product that reads the weights that a node turns.
function conv.turned_shape(node)
    local a = node.attrs
    return { channels = a.out // a.groups, out = a.channels // a.groups, taps = most_taps(node.parts) }
end

function conv.weight_gradient(node, op)
    local g = op.gather(node)
    return { shape = conv.shape(g), step = step_of(g), partials = node.size.N or 1 }
end

function arguments.conv2d_dw_sum(kernel, node)
    local s = node.size
    return { partials = s.N, groups = s.G, terms = s.K, out = s.L, store = c_text.store(kernel, "y[i]", "value") }
end

return conv
