-- few: how many neighbouring elements a thread of a device moves at once: 16 bytes of the narrowest array, where the
-- arrays begin at multiples of as much. Tensors, and the layers of a loop, begin at multiples of 16 elements of their
-- arena (passes/layout.lua, passes/memory.lua), so the shapes alone decide.
local c_text = require "emit.targets.c_text"
local graph = require "graph.graph"
local view = require "graph.view"

local few = {}

local BYTES = 16

local function size_of(t, real) return graph.is_half(t) and 2 or t.dtype ~= "i32" and real == "f64" and 8 or 4 end

--- Whether a tensor begins at a multiple of 16 bytes: numbers of the step do not.
function few.is_aligned(t)
    local place = t.place
    if not place or place.arena == "step" or place.arena == "sums" then return false end
    return place.offset % 4 == 0 and (place.stride or 0) % 4 == 0
end

--- How many elements of the flat space a sweep of an update moves at once: all ranges and their parts begin and end at
--- multiples of 16 elements (ranks/exchange.h, GA_CUT).
function few.of_sweep(g) return BYTES // (g.half_sums and 2 or g.real == "f64" and 8 or 4) end

--- How many elements of these tensors are moved at once along rows of `width` elements.
function few.of_rows(tensors, width, real)
    local most = 1
    for _, t in ipairs(tensors) do
        most = math.max(most, BYTES // size_of(t, real))
        if not few.is_aligned(t) then return 1 end
    end
    while width % most ~= 0 do most = most // 2 end
    return most
end

-- How neighbours of a result find theirs in an input: they are neighbours too ("all"), one element ("one"), or each
-- has a place of its own.
local function way_of(v, count)
    local last = v.dims[#v.dims]
    if not last or last.extent % count ~= 0 or last.stride > 1 then return "each" end
    if last.stride == 0 then return "one" end
    local even = v.offset % count == 0
    for k = 1, #v.dims - 1 do even = even and v.dims[k].stride % count == 0 end
    return even and "all" or "each"
end

--- The text of an element of an input that is read alone: element i of the result.
function few.alone(array, v) return ("%s[%s]"):format(array, v and view.text(v, "(int)i") or "i") end

--- The text of element k of an input named `key`, a tensor t read through a view v, for `count` neighbours of the
--- result from `first` on. A line that reads them is added to `reads`; rest: its argument that says how many there are.
function few.element(count, reads, rest, key, array, t, v)
    local way = not few.is_aligned(t) and "each" or v and way_of(v, count) or "all"
    if way == "each" then return few.alone(array, v) end
    reads[#reads + 1] = ("const auto of_%s = "):format(key) .. (way == "one" and "%s[%s];" or
        "ga_read<FEW>(%s + %s%s);"):format(array, v and view.text(v, "(int)first") or "first", not v and rest or "")
    return way == "one" and "of_" .. key or ("of_%s.at[k]"):format(key)
end

--- How a pointwise node moves its elements, neighbours from `first` on at once; nil: one by one.
---   count, rest             how many; whether the last ones are fewer
---   reads                   lines that read neighbours of inputs, and of the result if the kernel adds to it
---   element(key, array, t)  the text of element k of the input of this name; it adds to `reads`
function few.pointwise(node, kernel, real)
    local out = graph.writes(node)[1]
    if out.columns or not few.is_aligned(out.tensor) then return nil end
    local count = BYTES // size_of(out.tensor, real)
    for _, t in ipairs(graph.reads(node)) do
        if t.kind ~= "scalar" and few.is_aligned(t) then count = math.max(count, BYTES // size_of(t, real)) end
    end
    local rest = graph.elements(out.tensor.shape) % count ~= 0
    local behind = rest and ", n - first" or ""
    local element_type = out.tensor.dtype == "i32" and "int" or c_text.type_of(out.tensor).text
    local reads = { ("ga_few<%s, FEW> to;"):format(element_type) }
    if kernel.can_add then reads[2] = ("if (add) to = ga_read<FEW>(out + first%s);"):format(behind) end
    local function element(key, array, t)
        return few.element(count, reads, behind, key, array, t, node.views[key])
    end
    return { count = count, rest = rest, reads = reads, element = element }
end

return few
