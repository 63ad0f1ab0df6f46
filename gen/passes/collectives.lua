-- collectives: marks the node of the backward pass after which the collective of each bucket starts. Only the last
-- micro-step of a cycle reduces over the ranks (passes/roles.lua).
--
--   ddp:    d_w written last by node n   ->   behind n: start the all-reduce of the bucket of w
--   zero1:  the same                     ->   behind n: start the reduce-scatter of the bucket of w
--
-- A bucket is cut into a part for each rank at any place; at the beginnings of tensors where a rule of its optimizers
-- needs whole tensors; nowhere where the spec gives whole chunks to ranks.
--
-- A bucket is complete after the last writer of its gradients. Where a loop over layers writes the gradients of a
-- region that has several buckets, each starts inside the loop, after the last layer of it that the loop comes to.
-- A bucket that begins or ends inside of a layer starts behind the node, in the iteration, that completes it. For all
-- other buckets a loop counts as one node. Sums that a cycle collects are complete before the backward pass: their
-- bucket starts behind the first gradient, so that a backward pass from the output's gradient starts it too.
local bucket_spans = require "graph.bucket_spans"
local diag = require "base.diag"
local graph = require "graph.graph"

local collectives = { name = "collectives", doc = "which collective follows which node" }

-- Requests of runtime/ranks/comm.h that can be under way.
local MOST = 256

-- The last writer of each parameter's gradient: its node of g.backward, and the node inside of that if it is a loop.
local function last_writers(g, kind)
    local outer, inner, position = {}, {}, {}
    for i, node in ipairs(g.backward) do
        position[node] = i
        graph.walk({ node }, function(writer)
            for _, out in ipairs(graph.writes(writer)) do
                for _, param in ipairs(out.tensor.kind == kind and graph.members(out.tensor.param) or {}) do
                    outer[param], inner[param] = node, writer
                end
            end
        end)
    end
    return outer, inner, position
end

-- The loop that writes the gradients of all these parameters last, and the node inside of it behind which those of an
-- iteration are complete; nil: there is no such loop.
local function loop_of(params, outer, inner)
    local loop = outer[params[1]]
    if loop.op ~= "times" then return nil end
    local last, position = nil, {}
    for i, node in ipairs(loop.body) do position[node] = i end
    for _, param in ipairs(params) do
        local writer = inner[param]
        if outer[param] ~= loop or not position[writer] then return nil end
        if not last or position[writer] > position[last] then last = writer end
    end
    return loop, last
end

local function note(node, field, value)
    node[field] = node[field] or {}
    table.insert(node[field], value)
end

-- The node behind which a bucket starts: the last writer of its gradients; for what a cycle collects, the node that
-- completes the first gradient.
local function start_of(g, bucket, outer, position)
    local first, last
    for _, param in ipairs(bucket.collected and g.params or bucket.params) do
        local node = outer[param]
        if node and (not first or position[node] < position[first]) then first = node end
        if node and (not last or position[node] > position[last]) then last = node end
    end
    return bucket.collected and first or last
end

-- Marks where buckets start that have some layers of a parameter and not all.
local function note_partial(g)
    for _, span in ipairs(bucket_spans.list(g, g.backward, bucket_spans.each_gradient)) do
        if not g.buckets[span.bucket].partial then
            -- a loop is one node for it
        elseif span.last.loop then
            bucket_spans.note(span.last, "completes_at", span.bucket)
        else
            note(span.last.node, "completes", span.bucket)
        end
    end
end

-- Why a bucket is what it is.
local function reason(config, bucket, collective)
    local limit = config.bucket_elements
    if bucket.collected then
        return ("collected over a cycle for running statistics; its %s starts behind the first complete gradient")
            :format(collective)
    end
    if config.chunks then
        return ("a chunk of parameters; its %s starts where its last gradient is complete"):format(collective)
    end
    return bucket.of and ("layers of a region larger than %d elements; its %s starts inside the loop"):format(limit,
        collective) or ("neighbours share one of up to %d elements; its %s starts where its last gradient is complete")
        :format(limit, collective)
end

-- Whether a rule of update needs whole tensors of a bucket.
local function is_whole(g, bucket)
    for _, param in ipairs(bucket.params) do
        for _, run in ipairs(param.groups or {}) do
            local rule = run.index and g.groups:get(run.index).rule
            if rule and (rule.scope ~= "element" or rule.factors) then return true end
        end
    end
    return false
end

-- How a bucket is divided over the ranks (runtime/ranks/shard.h).
local function sharing(g, config, bucket)
    if bucket.collected then return "element" end
    if config.owned then return "bucket" end
    return not g.handlers and is_whole(g, bucket) and "tensor" or "element"
end

local function check_number(g, config)
    local each = g.sharded.parameters and 2 or 1        -- a chunk is gathered too
    if each * #g.buckets <= MOST then return end
    if config.chunks then
        diag.fail(config.parallel_at, ("parallel: %d chunks, expected at most %d: %s"):format(#g.buckets, MOST // each,
            config.chunks.rule == "layer" and not config.chunks.size and "a `times` of equal layers, a chunk_size, or "
            .. "another mode" or "larger ones"), {})
    end
    local bytes = g.trained_elements * (g.real == "f64" and 8 or 4)
    diag.fail(diag.field(config.parallel_at, "bucket"), ("parallel: %d buckets, expected at most %d: "
        .. "bucket = \"%dKiB\" or more"):format(#g.buckets, MOST, math.ceil(bytes / (MOST / 2) / 1024)), {})
end

function collectives.run(g, config)
    g.collectives = {}
    local reduces = config.mode.reduces
    if not reduces then return true end
    check_number(g, config)
    local outer, inner, position = last_writers(g, reduces.of)
    note_partial(g)
    for i, bucket in ipairs(g.buckets) do
        local loop, last
        if bucket.of then loop, last = loop_of(bucket.params, outer, inner) end
        if loop then
            if i == bucket.of.first_bucket then
                note(last, "completes_layers", { first = i, layers = bucket.of.bucket_layers, loop = loop })
            end
        elseif not bucket.partial then
            note(start_of(g, bucket, outer, position), "completes", i)
        end
        local entry = bucket.handler and g.handlers[bucket.handler]
        local kind = bucket.collected and "all_reduce" or reduces.collective
        g.collectives[#g.collectives + 1] = { kind = kind, role = bucket.collected and "last" or reduces.role,
            bucket = i, n = bucket.n, offset = bucket.offset,
            wire = not bucket.collected and config.wire or g.real, sharing = sharing(g, config, bucket),
            group = entry and entry.group }
        graph.decide(g, ("bucket %d"):format(i), ("%d elements, %d parameters"):format(bucket.n, #bucket.params),
            reason(config, bucket, kind) .. (entry and "; handler " .. entry.name or ""))
    end
    return true
end

return collectives
