-- pool: the template arguments of pools and padding, as far as all targets have them.
local c_text = require "emit.targets.c_text"
local text = require "base.text"

local pool = { arguments = {} }
local arguments = pool.arguments

-- shape:
--   planes           of all images
--   height, width    of a plane of x
--   rows, columns    of a plane of y
local function shape_of(node)
    local a, s = node.attrs, node.size
    return { planes = s.B * s.C, height = a.height, width = a.width, rows = a.rows, columns = a.columns }
end

-- From where to where the window of place `p` reaches along an axis, in C.
local function reach(a, axis, p, extent, count)
    if not a.window then
        return ("%s * %d / %d"):format(p, extent, count),
            ("((%s + 1) * %d + %d) / %d"):format(p, extent, count - 1, count)
    end
    local step, size, padding = a.stride[axis], a.window[axis], a.padding[axis]
    local from = padding == 0 and ("%s * %d"):format(p, step) or ("%s * %d - %d"):format(p, step, padding)
    local to = ("%s * %d + %d"):format(p, step, size - padding)
    if padding > 0 then from = ("(%s > 0 ? %s : 0)"):format(from, from) end
    if (count - 1) * step + size - padding > extent then to = ("(%s < %d ? %s : %d)"):format(to, extent, to, extent) end
    return from, to
end

-- C expressions of the windows that contain place `h`: the first, and one past the last.
local function seen_by(a, axis, h, extent, count)
    if not a.window then
        return ("%s * %d / %d"):format(h, count, extent),
            ("((%s + 1) * %d + %d) / %d"):format(h, count, extent - 1, extent)
    end
    local step, size, padding = a.stride[axis], a.window[axis], a.padding[axis]
    local last = ("(%s + %d) / %d"):format(h, padding, step)
    return ("%s + %d < %d ? 0 : (%s + %d) / %d + 1"):format(h, padding, size, h, padding - size, step),
        ("%s < %d ? %s + 1 : %d"):format(last, count, last, count)
end

-- window: that of row p and column q of y, in C.
--   top, bottom    its first row, the one behind its last
--   left, right    its first column, the one behind its last
--   count          what an average divides by
--   size           elements of a window, if all have the same size
--   wide           columns of a window, at most
local function window_of(a)
    local top, bottom = reach(a, 1, "p", a.height, a.rows)
    local left, right = reach(a, 2, "q", a.width, a.columns)
    local constant = a.window and (a.include_padding or a.padding[1] == 0 and a.padding[2] == 0)
    return { top = text.block(top), bottom = text.block(bottom), left = text.block(left), right = text.block(right),
        count = constant and text.ident("WINDOW") or text.block("(bottom - top) * (right - left)"),
        size = a.window and a.window[1] * a.window[2] or 1,
        wide = a.window and a.window[2] or (a.width + a.columns - 2) // a.columns + 1 }
end

--- seen: the windows that see row h and column v of x, in C.
---   first_row, end_row          rows of y: the first, the one behind the last
---   first_column, end_column    columns of y: the first, the one behind the last
function pool.seen(a)
    local first_row, end_row = seen_by(a, 1, "h", a.height, a.rows)
    local first_column, end_column = seen_by(a, 2, "v", a.width, a.columns)
    return { first_row = text.block(first_row), end_row = text.block(end_row), first_column = text.block(first_column),
        end_column = text.block(end_column) }
end

-- The text that reads an element of t, given its address expression.
local function element(t, spelling) return text.block(c_text.load(t, spelling)) end

function arguments.maxpool2d(_, node)
    local x = node.ins.x
    return { shape = shape_of(node), window = window_of(node.attrs), type = c_text.type_of(x),
        first = element(x, "plane[at]"), x = element(x, "plane[h * W + v]"),
        value = text.block(c_text.stored(node.outs.y.tensor, "best")) }
end

function arguments.avgpool2d(_, node)
    local x, window = node.ins.x, window_of(node.attrs)
    return { shape = shape_of(node), window = window, type = c_text.type_of(x), x = element(x, "plane[h * W + v]"),
        value = text.block(c_text.stored(node.outs.y.tensor, ("sum / (%s)"):format(window.count.text))) }
end

function arguments.maxpool2d_dx(_, node) return { shape = shape_of(node) } end

function arguments.avgpool2d_dx(_, node) return { shape = shape_of(node), window = window_of(node.attrs) } end

function arguments.pad2d(_, node, _, dtype)
    local a, s = node.attrs, node.size
    return { shape = { planes = s.B * s.C, height = s.H, width = s.W, rows = s.P, columns = s.Q }, top = a.top,
        left = a.left, value = text.number(a.value, dtype) }
end

return pool
