-- view: how a pointwise kernel finds the element of an input that belongs to element i of its result.
--
--   view = { offset, dims = { { extent, stride }, ... } }     one dim per run of axes of the result
--   index = offset + sum over dims of (coordinate of i) * stride
--
-- Broadcast is stride 0, a slice an offset, a transposition permuted strides. Neighbouring dims that
-- walk the input evenly are merged, so equal views have equal texts.
local view = {}

local function product(shape, from, to)
    local n = 1
    for axis = from, to do n = n * shape[axis] end
    return n
end

--- Outer, own and inner elements of axes from..to (default from) of a shape.
function view.split(shape, from, to)
    to = to or from
    return product(shape, 1, from - 1), product(shape, from, to), product(shape, to + 1, #shape)
end

local function merged(dims)
    local out = {}
    for _, dim in ipairs(dims) do
        local last = out[#out]
        if dim.extent == 1 then
            -- an axis of one element moves nothing
        elseif last and last.stride == dim.stride * dim.extent then
            out[#out] = { extent = last.extent * dim.extent, stride = dim.stride }
        else
            out[#out + 1] = dim
        end
    end
    return out
end

--- A view from the extents of the result and the strides in the input, axis by axis.
function view.new(extents, strides, offset)
    local dims = {}
    for i, extent in ipairs(extents) do dims[i] = { extent = extent, stride = strides[i] } end
    return { offset = offset or 0, dims = merged(dims) }
end

--- The strides of the axes of a tensor that lies row by row.
function view.strides(shape)
    local strides, n = {}, 1
    for axis = #shape, 1, -1 do
        strides[axis] = n
        n = n * shape[axis]
    end
    return strides
end

--- Whether two shapes are equal.
function view.same(a, b)
    for axis = 1, math.max(#a, #b) do
        if a[axis] ~= b[axis] then return false end
    end
    return true
end

--- The view of an input of shape `from` in a result of shape `to`: axes from the right, extents of 1
--- and missing axes repeat. nil if it does not fit.
function view.broadcast(from, to)
    local strides, found = view.strides(from), {}
    local shift = #to - #from
    for axis = 1, #to do
        local extent = from[axis - shift] or 1
        if extent ~= to[axis] and extent ~= 1 then return nil end
        found[axis] = extent == to[axis] and strides[axis - shift] or 0
    end
    if shift < 0 then return nil end
    return view.new(to, found)
end

--- The shape that all shapes broadcast to, or nil and the axis of the second that does not fit.
function view.common(a, b)
    local shape, rank = {}, math.max(#a, #b)
    for axis = 1, rank do
        local x, y = a[axis - rank + #a] or 1, b[axis - rank + #b] or 1
        if x ~= y and x ~= 1 and y ~= 1 then return nil end
        shape[axis] = x == 1 and y or x
    end
    return shape
end

--- Runs of axes over which a gradient of shape `from` is summed to become one of shape `to`: a list
--- of { first, last } axes of `from`, the last run first.
function view.summed(from, to)
    local runs, shift = {}, #from - #to
    for axis = #from, 1, -1 do
        local kept = axis > shift and to[axis - shift] == from[axis]
        local run = runs[#runs]
        if not kept and run and run.first == axis + 1 then
            run.first = axis
        elseif not kept then
            runs[#runs + 1] = { first = axis, last = axis }
        end
    end
    return runs
end

--- Whether element i of the result is element i of the input, which has as many.
function view.plain(v)
    local dims = v.dims
    return v.offset == 0 and (#dims == 0 or #dims == 1 and dims[1].stride == 1)
end

--- Rows of `width` neighbours: the elements from one row to the next; nil if the view has others.
function view.by_rows(v, width)
    local row, across = v.dims[1], v.dims[2]
    local fits = #v.dims == 2 and across.extent == width and across.stride == 1 and row.stride >= width
    return fits and row.stride or nil
end

--- The index as C text over the variable `i`, such as "i / 64 * 128 + i % 64".
function view.text(v, i)
    local terms, block = {}, 1
    for k = #v.dims, 1, -1 do
        local dim = v.dims[k]
        if dim.stride ~= 0 then
            local term = i
            if block > 1 then term = ("%s / %d"):format(term, block) end
            if k > 1 then term = ("%s %% %d"):format(term, dim.extent) end
            if dim.stride > 1 then term = ("%s * %d"):format(term, dim.stride) end
            table.insert(terms, 1, term)
        end
        block = block * dim.extent
    end
    if v.offset > 0 or #terms == 0 then terms[#terms + 1] = ("%d"):format(v.offset) end
    return table.concat(terms, " + ")
end

return view
