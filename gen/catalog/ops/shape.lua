-- shape: ops that rearrange values, of real and whole numbers. A shape is split into (outer, n, inner): the axes
-- before the axis concerned, that axis, the axes behind it. Pointwise kernels read through the `view` of an op
-- (graph/view.lua) instead of running it. Axes count from 1.
local graph = require "graph.graph"
local view = require "graph.view"

local function moved(n) return { flops = 0, elements = 2 * graph.elements(n.size.S) } end

-- `shape` with one axis changed to `extent`, or removed if extent is nil.
local function with_axis(shape, axis, extent)
    local out = table.move(shape, 1, #shape, 1, {})
    out[axis] = extent
    if not extent then table.remove(out, axis) end
    return out
end

op "reshape" {
    doc = "the same elements in the same order under another shape",
    ins = { "x any (*)" }, outs = { "y any (S)" },
    letters = function(n, size) size.S = n.attrs.shape end,
    view = function(n) return view.broadcast(n.size.S, n.size.S) end,
    grad = function(b, n, dy)
        return { x = b:value("reshape", { x = dy.y }, { shape = n.ins.x.shape }) }
    end,
    cost = moved, lower = "pointwise",
    sample = "function(x) return flatten {} (scale { 2 } (reshape { 1, 5 } (x))) end",
}

op "detach" {
    doc = "the same values, through which no gradient flows",
    ins = { "x (*)" }, outs = { "y (S)" }, stops = true,
    letters = function(n, size) size.S = n.ins.x.shape end,
    view = function(n) return view.broadcast(n.size.S, n.size.S) end,
    grad = function() return {} end,
    cost = moved, lower = "pointwise",
    sample = "function(x) return x * detach(where(gt(x, 0), 2, 1)) end",
}

op "each_row" {
    doc = "a tensor without rows, repeated for each row of the batch",
    ins = { "x (*)" }, outs = { "y (S)" }, rows = true,
    letters = function(n, size) size.S = n.attrs.shape end,
    view = function(n) return view.broadcast(n.ins.x.shape, n.size.S) end,
    grad = function(b, n, dy) return { x = b:sum_to(dy.y, n.ins.x.shape) } end,
    cost = moved, lower = "pointwise",
    sample = [[function(x)
        local y = concat { axis = 2 } (parameter "p" { 2, 3, value = 0.5 }, reshape { 1, 3 } (linear "e" { 3 } (x)))
        return flatten {} (y * parameter "q" { 3, value = 2 })
    end]],
}

op "transpose" {
    doc = "the axes in another order: axis i of the result is axis order[i] of x",
    ins = { "x any (*)" }, outs = { "y any (S)" },
    letters = function(n, size)
        size.S = ordered.collect(n.attrs.order, function(axis) return n.ins.x.shape[axis] end)
    end,
    view = function(n)
        local strides = view.strides(n.ins.x.shape)
        return view.new(n.size.S, ordered.collect(n.attrs.order, function(axis) return strides[axis] end))
    end,
    grad = function(b, n, dy)
        local back = {}
        for i, axis in ipairs(n.attrs.order) do back[axis] = i end
        return { x = b:value("transpose", { x = dy.y }, { order = back }) }
    end,
    cost = moved, lower = "pointwise",
    sample = [[function(x)
        return flatten {} (tanh(transpose { 1, 4, 2, 3 } (reshape { 2, 3, 2 } (linear "t" { 12 } (x)))))
    end]],
}

op "slice" {
    doc = "the elements first .. last of one axis; `drop` removes the axis of one element",
    ins = { "x any (*)" }, outs = { "y any (S)" },
    letters = function(n, size)
        local a = n.attrs
        size.S = with_axis(n.ins.x.shape, a.axis, not a.drop and a.last - a.first + 1 or nil)
    end,
    view = function(n)
        local a, shape = n.attrs, n.ins.x.shape
        local strides = view.strides(shape)
        return view.new(with_axis(shape, a.axis, a.last - a.first + 1), strides,
            (a.first - 1) * strides[a.axis])
    end,
    grad = function(b, n, dy)
        return { x = b:value("slice_dx", { dy = dy.y }, { shape = n.ins.x.shape, axis = n.attrs.axis,
            first = n.attrs.first, last = n.attrs.last }) }
    end,
    cost = moved, lower = "pointwise",
    sample = "slice { axis = 2, from = 2, to = 4 }",
    samples = { "function(x) return pick { axis = 3, index = 2 } (reshape { 3, 2 } (linear 's' { 6 } (x))) end" },
}

op "slice_dx" {
    doc = "dx = dy at first .. last of one axis, 0 elsewhere",
    ins = { "dy (*)" }, outs = { "y (S)" },
    letters = function(n, size)
        size.S = n.attrs.shape
        size.outer, size.n, size.inner = view.split(size.S, n.attrs.axis)
    end,
    internal = true, lower = "shape", cost = moved, half = "dy y",
}

op "part" {
    doc = "the columns first .. last of the result of a joint product, whose other columns are other parts",
    ins = { "x (*)" }, outs = { "y (S)" },
    letters = function(n, size)
        local shape = n.ins.x.shape
        size.S = with_axis(shape, #shape, n.attrs.last - n.attrs.first + 1)
    end,
    view = function(n) return view.new(n.size.S, view.strides(n.ins.x.shape), n.attrs.first - 1) end,
    grad = function(b, n, dy)
        return { x = b:value("part_dx", { x = dy.y }, ordered.copy(n.attrs, { shape = n.ins.x.shape })) }
    end,
    internal = true, cost = moved, lower = "pointwise",
}

op "part_dx" {
    doc = "dx = dy in the columns first .. last, which are all that it writes",
    ins = { "x (*)" }, outs = { "y (S)" },
    letters = function(n, size) size.S = n.attrs.shape end,
    view = function(n) return view.broadcast(n.ins.x.shape, n.ins.x.shape) end,
    columns = function(n) return { first = n.attrs.first, width = n.attrs.last - n.attrs.first + 1 } end,
    internal = true, cost = moved, lower = "pointwise",
}

op "concat" {
    doc = "a, then b, along an axis",
    ins = { "a any (*)", "b any (*)" }, outs = { "y any (S)" },
    letters = function(n, size)
        local axis, a = n.attrs.axis, n.ins.a.shape
        size.S = with_axis(a, axis, a[axis] + n.ins.b.shape[axis])
        size.outer, size.n, size.inner = view.split(size.S, axis)
    end,
    grad = function(b, n, dy)
        local axis, cut = n.attrs.axis, n.ins.a.shape[n.attrs.axis]
        return {
            a = b:value("slice", { x = dy.y }, { axis = axis, first = 1, last = cut }),
            b = b:value("slice", { x = dy.y }, { axis = axis, first = cut + 1, last = n.size.n }),
        }
    end,
    cost = moved, lower = "shape",
    sample = "function(x) return concat { axis = 2 } (x, tanh(x), linear 'c' { 3 } (x)) end",
    samples = { [[function(x)
        local y = reshape { 2, 5 } (linear "c" { 10 } (x))
        return flatten {} (concat { axis = 3 } (y, reshape { 2, 1 } (linear "d" { 2 } (x))))
    end]] },
}
