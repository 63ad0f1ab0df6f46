-- kernels_pool: the template arguments of pools and padding, as far as all targets have them.
local c_text = require "emit.targets.c_text"
local text = require "base.text"

local pool = { arguments = {} }
local arguments = pool.arguments

local function sizes(node)
    local a, s = node.attrs, node.size
    return { planes = s.B * s.C, height = a.height, width = a.width, rows = a.rows, columns = a.columns }
end

-- From where to where the window of place `p` reaches along an axis, in C.
local function window(a, axis, p, extent, count)
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

-- The windows that see place `h`: first, and the one behind the last.
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

local function add_windows(list, a)
    local top, bottom = window(a, 1, "p", a.height, a.rows)
    local left, right = window(a, 2, "q", a.width, a.columns)
    list.top, list.bottom, list.left, list.right =
        text.block(top), text.block(bottom), text.block(left), text.block(right)
end

--- Adds the windows that see a place.
function pool.add_seen(list, a)
    local first_row, end_row = seen_by(a, 1, "h", a.height, a.rows)
    local first_column, end_column = seen_by(a, 2, "v", a.width, a.columns)
    list.first_row, list.end_row = text.block(first_row), text.block(end_row)
    list.first_column, list.end_column = text.block(first_column), text.block(end_column)
end

local function add_count(list, a)
    local constant = a.window and (a.include_padding or a.padding[1] == 0 and a.padding[2] == 0)
    list.count = constant and text.ident("WINDOW") or text.block("(bottom - top) * (right - left)")
    list.window = a.window and a.window[1] * a.window[2] or 1
end

-- An element in the words of a template.
local function element(t, spelling) return text.block(c_text.load(t, spelling)) end

function arguments.maxpool2d(_, node)
    local list, x = sizes(node), node.ins.x
    list.type, list.first, list.x = c_text.type_of(x), element(x, "plane[at]"), element(x, "plane[h * W + v]")
    list.value = text.block(c_text.stored(node.outs.y.tensor, "best"))
    add_windows(list, node.attrs)
    return list
end

-- Windows and the elements of each.
local function averaging(node)
    local list = sizes(node)
    add_windows(list, node.attrs)
    add_count(list, node.attrs)
    return list
end

function arguments.avgpool2d(_, node)
    local list = averaging(node)
    list.type, list.x = c_text.type_of(node.ins.x), element(node.ins.x, "plane[h * W + v]")
    list.value = text.block(c_text.stored(node.outs.y.tensor, ("sum / (%s)"):format(list.count.text)))
    list.count = nil
    return list
end

function arguments.maxpool2d_dx(_, node) return sizes(node) end
function arguments.avgpool2d_dx(_, node) return averaging(node) end

function arguments.pad2d(_, node, _, dtype)
    local a, s = node.attrs, node.size
    return { planes = s.B * s.C, height = s.H, width = s.W, rows = s.P, columns = s.Q,
        top = a.top, left = a.left, value = text.number(a.value, dtype) }
end

return pool
