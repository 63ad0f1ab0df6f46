-- shape: layers that rearrange values or reduce an axis. Axes count from 1; axis 1 is the rows of the batch, which
-- no layer changes.
local diag = require "base.diag"
local graph = require "graph.graph"

local AXIS = { name = "axis", type = "int", min = 1, required = true, doc = "the axis, 2 or more: 1 is the rows" }

local function fail(b, what, message, ...)
    diag.fail(b.at, what .. ": " .. message:format(...), {})
end

local function choice(first, last) return first == last and first or ("one of %d..%d"):format(first, last) end

-- The axis given by a field, nil being the last one; refuses the rows, which parameters alone do not have, and axes
-- that x does not have.
local function axis_of(b, what, axis, x)
    local rank, rowless = #x.shape, graph.rowless(x)
    axis = axis or rank
    if rank < 2 then
        fail(b, what, "shape %s has %s alone, expected two axes or more", graph.shape_text(x.shape),
            rowless and "one axis" or "the rows")
    elseif axis == 1 and not rowless then
        fail(b, what, "axis 1 is the rows of the batch, expected %s", choice(2, rank))
    elseif axis > rank then
        fail(b, what, "axis is %d, expected %s of shape %s", axis, choice(rowless and 1 or 2, rank),
            graph.shape_text(x.shape))
    end
    return axis
end

local function without(shape, axis)
    local out = table.move(shape, 1, #shape, 1, {})
    table.remove(out, axis)
    return out
end

-- === rearranging ==================================================================================

-- The shape of the result: the rows and the given extents, with -1 replaced by the extent that fits.
local function extents(b, given, x)
    local width, known, free = graph.elements(x.shape) // x.shape[1], 1, nil
    for i, extent in ipairs(given) do
        if extent == -1 and free or extent == 0 then
            fail(b, "reshape", "extent %d is %d, expected numbers from 1, one of them -1 at most", i, extent)
        elseif extent > width then
            fail(b, "reshape", "extent %d is %d, but %s has %d elements per row", i, extent,
                graph.shape_text(x.shape), width)
        end
        if extent == -1 then free = i else known = known * extent end
    end
    local shape = { x.shape[1], table.unpack(given) }
    if free and width % known == 0 then shape[free + 1] = width // known end
    if free and width % known ~= 0 or not free and known ~= width then
        fail(b, "reshape", "%s has %d elements per row, which (%s) cannot hold", graph.shape_text(x.shape),
            width, table.concat(given, ", "))
    end
    return shape
end

layer "reshape" {
    usage = "reshape { extent, ... }",
    doc = "other axes behind the rows, the same elements in the same order: reshape { 8, -1 }",
    fields = {
        { name = "extents", type = "int", min = -1, rest = true, required = true,
          doc = "the extents of the axes behind the rows; one may be -1" },
    },
    example = "local y = flatten {} (reshape { 2, 4 } (x))",
    apply = function(b, f, x) return b:value("reshape", { x = x }, { shape = extents(b, f.extents, x) }) end,
}

layer "flatten" {
    doc = "one axis behind the rows",
    fields = {},
    example = "flatten {}",
    apply = function(b, _, x) return b:value("reshape", { x = x }, { shape = extents(b, { -1 }, x) }) end,
}

layer "transpose" {
    usage = "transpose { 1, axis, ... }",
    doc = "the axes in another order: transpose { 1, 3, 2 }; the rows stay first",
    fields = {
        { name = "order", type = "int", min = 1, rest = true, required = true,
          doc = "axis order[i] of x becomes axis i" },
    },
    example = "local y = flatten {} (transpose { 1, 3, 2 } (reshape { 2, 4 } (x)))",
    apply = function(b, f, x)
        local seen = {}
        for _, axis in ipairs(f.order) do seen[axis] = true end
        local complete = #f.order == #x.shape and f.order[1] == 1
        for axis = 1, #x.shape do complete = complete and seen[axis] end
        if not complete then
            fail(b, "transpose", "{ %s } found for shape %s, expected 1, which stays first, and each of 2..%d once",
                table.concat(f.order, ", "), graph.shape_text(x.shape), #x.shape)
        end
        return b:value("transpose", { x = x }, { order = f.order })
    end,
}

layer "slice" {
    doc = "elements from .. to of an axis, both included, counted from 1",
    fields = { AXIS,
        { name = "from", type = "int", min = 1, default = 1, doc = "the first" },
        { name = "to", type = "int", min = 1, doc = "the last; default: that of the axis" },
    },
    example = "slice { axis = 2, from = 3, to = 8 }",
    apply = function(b, f, x)
        local axis = axis_of(b, "slice", f.axis, x)
        local last = f.to or x.shape[axis]
        if last > x.shape[axis] or f.from > last then
            fail(b, "slice", "elements %d..%d found, axis %d of %s has 1..%d", f.from, last, axis,
                graph.shape_text(x.shape), x.shape[axis])
        end
        return b:value("slice", { x = x }, { axis = axis, first = f.from, last = last })
    end,
}

layer "pick" {
    doc = "one element of an axis, counted from 1; the axis goes",
    fields = { AXIS,
        { name = "index", type = "int", min = 1, required = true, doc = "number of the element" },
    },
    example = "local y = pick { axis = 2, index = 1 } (reshape { 2, 4 } (x))",
    apply = function(b, f, x)
        local axis = axis_of(b, "pick", f.axis, x)
        if f.index > x.shape[axis] then
            fail(b, "pick", "index is %d, axis %d of %s has 1..%d", f.index, axis,
                graph.shape_text(x.shape), x.shape[axis])
        end
        return b:value("slice", { x = x }, { axis = axis, first = f.index, last = f.index, drop = true })
    end,
}

layer "concat" {
    usage = "concat { axis* } (a, b, ...)",
    doc = "tensors one behind the other along an axis: concat { axis = 2 } (a, b, ...)",
    fields = { AXIS },
    takes = "several",
    example = "local y = concat { axis = 2 } (x, tanh(x))",
    apply = function(b, f, x, ...)
        local axis = axis_of(b, "concat", f.axis, x)
        for i, other in ipairs { ... } do
            local same = #other.shape == #x.shape and graph.shape_text(without(other.shape, axis))
                == graph.shape_text(without(x.shape, axis))
            if not same or other.dtype ~= x.dtype then
                fail(b, "concat", "tensor %d is %s %s, the first %s %s: expected the same but for axis %d",
                    i + 1, other.dtype, graph.shape_text(other.shape), x.dtype, graph.shape_text(x.shape), axis)
            end
            x = b:value("concat", { a = x, b = other }, { axis = axis })
        end
        return x
    end,
}

layer "detach" {
    doc = "x, through which no gradient flows",
    fields = {}, word = true,
    example = "local y = x + detach(tanh(x) - x)",
    apply = function(b, _, x) return b:value("detach", { x = x }) end,
}

-- === reducing an axis =============================================================================

local OPTIONAL = { { name = "axis", type = "int", min = 1, doc = "the axis, 2 or more; default: the last" } }

local function sum_layer(name, mean)
    layer(name) {
        doc = ("the %s over an axis, which goes; %s(x): over the last"):format(name, name),
        fields = OPTIONAL, word = true,
        example = ("local y = %s { axis = 2 } (reshape { 2, 4 } (x))"):format(name),
        apply = function(b, f, x)
            local axis = axis_of(b, name, f.axis, x)
            return b:value("axis_sum", { x = x }, { first = axis, last = axis, mean = mean,
                shape = without(x.shape, axis) })
        end,
    }
end

sum_layer("sum", false)
sum_layer("mean", true)

layer "max" {
    doc = "the greatest value over an axis, which goes; max(x): over the last; the gradient flows to the first such",
    fields = OPTIONAL,
    example = "local y = max { axis = 2 } (reshape { 2, 4 } (x))",
    apply = function(b, f, x)
        local axis = axis_of(b, "max", f.axis, x)
        return b:value("axis_max", { x = x }, { first = axis, last = axis, shape = without(x.shape, axis) })
    end,
}

layer "softmax" {
    doc = "e^x / sum of e^x over the last axis",
    fields = {}, word = true,
    example = "softmax {}",
    apply = function(b, _, x) return b:value("softmax", { x = x }) end,
}

layer "log_softmax" {
    doc = "x - log of the sum of e^x over the last axis",
    fields = {}, word = true,
    example = "log_softmax {}",
    apply = function(b, _, x) return b:value("log_softmax", { x = x }) end,
}
