-- windows: what a program says of the windows that gradients are exchanged from (passes/windows.lua).
local by_layer = require "emit.boundary.by_layer"
local c_text = require "emit.targets.c_text"
local layout = require "passes.layout"
local ordered = require "base.ordered"
local sections = require "emit.program.sections"
local text = require "base.text"

local windows = {}

-- The function that finds the layers of a ring, in elements from the first window.
local function finder(param)
    local ring = param.window.ring
    local last, layers, distance = c_text.last(ring.region), ring.layers, (param.joint or param).gradient.place.distance
    local head = ("static inline int64_t %s(int l) {"):format(ring.name)
    local says = ("/* Gradients of layer l of %s, from the beginning of the two windows that buckets take turns in. */")
        :format(ring.region.name)
    if layers == 1 then
        return { says, head, ("    return (%s - l) %% 2 * (int64_t)%s;"):format(last, distance), "}" }
    end
    return { says, head, ("    const int layers = %d, bucket = (%s - l) / layers;"):format(layers, last),
        ("    const int first = %s + 1 - (bucket + 1) * layers; /* layer of the bucket */"):format(last),
        ("    return (bucket %% 2 * layers + l - (first > 0 ? first : 0)) * (int64_t)%s;"):format(distance), "}" }
end

--- The functions that find the layers of each ring and of parameters in the windows of several buckets, for model.h.
function windows.finders(g)
    local list, seen = by_layer.finders(g, function(param) return param.window and param.window.run end, function(run)
        return ("Where the gradient of %s of layer l lies, in elements from that of layer 0.")
            :format(by_layer.covered(run))
    end, function(param) return param.gradient end), {}
    for _, param in ipairs(g.params) do
        local ring = param.window and param.window.ring
        if ring and param.gradient and not seen[ring] then
            seen[ring] = true
            if #list > 0 then list[#list + 1] = "" end
            for _, line in ipairs(finder(param)) do list[#list + 1] = line end
        end
    end
    return sections.lines(list)
end

--- Whether elements lie between tensors that no kernel writes.
function windows.has_gaps(g)
    for _, param in ipairs(g.params) do
        if param.window and param.flat.n % layout.ALIGN ~= 0 then return true end
    end
    return false
end

--- Where each bucket's window begins, as the table WINDOWS of step.c; nothing without windows.
function windows.table(g)
    local list = ordered.collect(g.sharded.gradients and g.collectives or {}, function(x)
        return tostring(x.window or 0)
    end)
    if #list == 0 then return text.block("") end
    return text.block("/* Where the window of each bucket begins. */\n"
        .. c_text.wrap("", "static const int64_t WINDOWS[] = {", list, "};"))
end

-- The elements between tensors of each bucket, as { at, n } from the bucket's beginning.
local function gaps_of(g)
    return ordered.collect(g.collectives, function(x)
        local list = {}
        for _, p in ipairs(x.window and g.params or {}) do
            for l = 0, p.window and p.count - 1 or -1 do
                local at = p.flat.offset + l * p.flat.stride - x.offset
                local n = (-p.flat.n) % layout.ALIGN
                if at >= 0 and at < x.n and n > 0 then list[#list + 1] = { at + p.flat.n, n } end
            end
        end
        return list
    end)
end

--- The rows of these elements for a device, { at, n }, and the table of the first row of each bucket.
function windows.gap_tables(g)
    local rows, first = {}, { "0" }
    for i, list in ipairs(gaps_of(g)) do
        for _, gap in ipairs(list) do rows[#rows + 1] = ("{%d, %d},"):format(gap[1], gap[2]) end
        first[i + 1] = tostring(#rows)
    end
    return sections.lines(rows), text.block(c_text.wrap("", "static const int GAPS[] = {", first, "};"))
end

--- How many events a device needs to know when windows are free.
function windows.events(g) return g.windows and g.windows.waits and #g.collectives or 0 end

--- Arguments of the block `windows` of memory.c. params: in the order of the flat space.
function windows.places(g, target, params)
    local list = {}
    for _, p in ipairs(params) do
        if p.window then
            list[#list + 1] = target.place(p.value, "windows", p.window.offset)
        elseif p.collected then
            list[#list + 1] = target.place(p.value, "collected", p.flat.offset - g.trained_elements)
        end
    end
    return { collected = g.summed_elements > g.trained_elements, places = sections.lines(list) }
end

return windows
