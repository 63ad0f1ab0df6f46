-- bucket_spans: when a body touches each bucket. Nodes are counted as the program runs them, loops iteration by
-- iteration:
--
--   embedding   times(2) "h" { fc, proj }   head          steps 1; 2, the loop, and 3 to 6; 7
--   bucket 1: embedding, fc of layer 0                    from 1, at the embedding, to 3, at fc with l = 0
--   bucket 2: proj of layer 0, all of layer 1             from 4, at proj with l = 0, to 6, at proj with l = 1
--
-- A loop touches from its beginning to its end what its iterations share: parameters outside of it, and its own if the
-- bucket has those of all layers.
local graph = require "graph.graph"

local bucket_spans = {}

--- The number of the bucket that has a trained parameter, in layer l of its loop.
function bucket_spans.bucket_of(g, param, l)
    local at = param.flat.offset + l * param.flat.stride
    for i, bucket in ipairs(g.buckets) do
        if not bucket.collected and bucket.offset <= at and at < bucket.offset + bucket.n then return i end
    end
end

--- Elements of the flat space that a tensor of n takes: it ends where cuts may be.
function bucket_spans.taken(n) return (n + 15) // 16 * 16 end

--- Where the tensor at element `at` of the flat space lies in the window that its bucket is gathered into, in elements
--- of the program's type. A parameter that kernels read in 16 bits takes half as much there as in the flat space.
function bucket_spans.gathered_at(bucket, at)
    local place = at - bucket.offset
    for _, param in ipairs(bucket.half and bucket.params or {}) do
        for l = 0, graph.is_half(param.value) and param.count - 1 or -1 do
            local first = param.flat.offset + l * param.flat.stride
            local before = first >= bucket.offset and first < at
            place = place - (before and bucket_spans.taken(param.flat.n) // 2 or 0)
        end
    end
    return place
end

-- The nodes of a body in the order of the program, as { node, loop, l, outer }; outer: { node, from, to }, the node of
-- the body that it belongs to and the numbers of its steps.
local function steps_of(body)
    local list = {}
    for _, node in ipairs(body) do
        local outer = { node = node, from = #list + 1 }
        list[#list + 1] = { node = node, l = 0, outer = outer }
        for i = 0, node.op == "times" and node.count - 1 or -1 do
            local l = node.step > 0 and i or node.count - 1 - i
            for _, inner in ipairs(node.body) do
                list[#list + 1] = { node = inner, loop = node, l = l, outer = outer }
            end
        end
        outer.to = #list
    end
    return list
end

-- Whether a bucket has a parameter of some layers, so that each iteration of a loop touches another bucket.
local function is_by_layer(bucket, param)
    return param.region ~= nil and (bucket.of ~= nil or bucket.partial ~= nil and bucket.partial[param] ~= nil)
end

--- The buckets that a body touches, in the order of their first steps, and the number of its steps. each(node, f) calls
--- f(param) for each trained parameter that a node touches. A span is { bucket, param, first, from, last, to, outer }:
--- first, last: { node, loop, l }, where the bucket is touched first, for `param`, and last; from, to: the numbers of
--- these steps; outer: { from, to }, the nodes of the body around both, each { node, from, to } with its own steps.
function bucket_spans.list(g, body, each)
    local list, by_bucket, steps = {}, {}, steps_of(body)
    for number, step in ipairs(steps) do
        each(step.node, function(param)
            local i, outer = bucket_spans.bucket_of(g, param, param.region and step.l or 0), step.outer
            local from, to, place = number, number, step
            if not is_by_layer(g.buckets[i], param) then
                from, to, place = outer.from, outer.to, { node = outer.node, l = 0 }
            end
            local span = by_bucket[i]
            if not span then
                span = { bucket = i, to = 0, from = math.huge, rank = #list, outer = {} }
                by_bucket[i], list[#list + 1] = span, span
            end
            if from < span.from then
                span.from, span.first, span.param, span.outer.from = from, place, param, outer
            end
            if to >= span.to then span.to, span.last, span.outer.to = to, place, outer end
        end)
    end
    table.sort(list, function(a, b)
        if a.from ~= b.from then return a.from < b.from end
        return a.rank < b.rank
    end)
    return list, #steps
end

--- Notes at a node, in its list `field`, what happens there in iteration l: an entry { loop, at = { [l] = number } }
--- has at most one number for an iteration; outside of loops l is 0. key: entries of other keys have other numbers.
function bucket_spans.note(place, field, number, key)
    local node = place.node
    node[field] = node[field] or {}
    for _, entry in ipairs(node[field]) do
        if entry.key == key and entry.loop == place.loop and not entry.at[place.l] then
            entry.at[place.l] = number
            return entry
        end
    end
    local entry = { loop = place.loop, at = { [place.l] = number }, key = key }
    table.insert(node[field], entry)
    return entry
end

--- The number that an entry has in iteration l of the node's loop; outside of loops l does not matter. nil: none.
function bucket_spans.number(entry, l) return entry.at[entry.loop and l or 0] end

--- Where layer l of a parameter lies, in elements; place: its place in the memory of chunks or of windows, as
--- param.chunk or param.window without a ring (passes/layer_runs.lua).
function bucket_spans.layer_at(place, param, l)
    return place.offset + (place.run and place.run.offsets[l] or l * param.flat.stride)
end

--- Calls f(param) for each trained parameter whose values a node reads.
function bucket_spans.each_read(node, f)
    for _, t in ipairs(graph.reads(node)) do
        for _, param in ipairs(t.kind == "param" and graph.members(t.param) or {}) do
            if param.used then f(param) end
        end
    end
end

--- Calls f(param) for each parameter whose gradient a node writes.
function bucket_spans.each_gradient(node, f)
    for _, out in ipairs(graph.writes(node)) do
        for _, param in ipairs(out.tensor.kind == "gradient" and graph.members(out.tensor.param) or {}) do f(param) end
    end
end

return bucket_spans
