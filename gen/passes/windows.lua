-- windows: memory for the gradients of a micro-step where each rank keeps only the sums of its own cuts. A bucket's
-- gradients are written into its window, and summed over the ranks from there into what each rank has of the gradient.
--
--   times(12) "h", a layer to a bucket:   layers 11, 9, ... in one window, 10, 8, ... in the other
--   a tied embedding:                     a window of its own, from the first write of its gradient to the last
--   parts of layers 3 and 4:              the same, from an iteration of the loop to the next
--
-- A window belongs to a bucket from the first write of its gradients until the bucket behind it is complete, so that
-- two exchanges are under way at once; buckets that follow each other share memory. The layers of a loop that is larger
-- than two buckets have a ring of two windows. Before memory is written again, the exchange that reads it must have
-- ended.
local bucket_spans = require "graph.bucket_spans"
local graph = require "graph.graph"
local layer_runs = require "passes.layer_runs"
local pack = require "passes.pack"

local windows = { name = "windows", doc = "memory for the gradients of a micro-step that are exchanged at once" }

-- One block of memory for each bucket, or for all buckets of a region. Buckets that a loop starts by layers share a
-- ring of two windows.
local function blocks_of(g)
    local list, by_item, complete = {}, {}, {}
    for _, outer in ipairs(g.backward) do
        graph.walk({ outer }, function(node)
            for _, layered in ipairs(node.completes_layers or {}) do complete[layered.first] = layered end
        end)
    end
    for _, x in ipairs(g.collectives) do
        local bucket = g.buckets[x.bucket]
        local item, block = bucket.of, nil
        if item then block = by_item[item] end
        x.beside = bucket.collected or nil
        if not bucket.collected and not block then
            local layered = item and complete[item.first_bucket]
            block = { params = bucket.params, base = item and item.offset or bucket.offset, buckets = {},
                size = item and item.size * item.count or bucket.n, layered = layered }
            if layered and item.bucket_layers * 2 < item.count then
                block.size = 2 * item.size * item.bucket_layers
                block.ring = { layers = item.bucket_layers, stride = item.size, region = item.params[1].region }
            end
            list[#list + 1] = block
            if item then by_item[item] = block end
        end
        if block then table.insert(block.buckets, x.bucket) end
    end
    return list
end

-- When the memory of each block is in use: until the bucket that is complete next is so. A loop is one step for buckets
-- of whole layers, and the place of their first write is the node of the body.
local function set_times(g, list)
    local spans, steps = bucket_spans.list(g, g.backward, bucket_spans.each_gradient)
    local by_bucket = {}
    for _, span in ipairs(spans) do by_bucket[span.bucket] = span end
    for _, block in ipairs(list) do
        block.from, block.complete = math.huge, 0
        for _, i in ipairs(block.buckets) do
            local span, fine = by_bucket[i], g.buckets[i].partial ~= nil
            local from, to = span.outer.from.from, span.outer.to.to
            if fine then from, to = span.from, span.to end
            if from < block.from then
                block.from, block.first = from, fine and span.first or { node = span.outer.from.node, l = 0 }
            end
            block.complete = math.max(block.complete, to)
        end
    end
    for _, block in ipairs(list) do
        block.to = steps
        for _, other in ipairs(list) do
            if other.complete > block.complete then block.to = math.min(block.to, other.complete) end
        end
    end
end

local function overlap(a, b) return a.offset < b.offset + b.size and b.offset < a.offset + a.size end

local function note(g, node, field, value)
    node[field] = node[field] or {}
    table.insert(node[field], value)
    g.windows.waits = true
end

-- Before a block is written, the exchanges of blocks that had its memory must have ended. Who waits first waits for all
-- that write there later.
local function note_waits(g, list)
    local order, waited = table.move(list, 1, #list, 1, {}), {}
    table.sort(order, function(a, b)
        if a.from ~= b.from then return a.from < b.from end
        return a.rank < b.rank
    end)
    for _, block in ipairs(order) do
        for _, other in ipairs(list) do
            if other.to < block.from and overlap(block, other) and not waited[other] then
                waited[other] = true
                for _, bucket in ipairs(other.buckets) do
                    if block.first.loop then
                        bucket_spans.note(block.first, "needs_at", bucket)
                        g.windows.waits = true
                    else
                        note(g, block.first.node, "needs", bucket)
                    end
                end
            end
        end
    end
end

-- In a ring a bucket has the window of the bucket before the last.
local function note_ring_waits(g, block)
    local loop, first = block.layered.loop, nil
    for _, node in ipairs(loop.body) do
        for _, out in ipairs(graph.writes(node)) do
            if out.tensor.kind == "gradient" and out.tensor.param.region == block.ring.region then
                first = first or node
            end
        end
    end
    note(g, first, "needs_layers", block.layered)
end

local function place(g, block)
    for _, param in ipairs(block.params) do
        param.window = { offset = block.offset + param.flat.offset - block.base, ring = block.ring }
    end
    for k, index in ipairs(block.buckets) do
        local x, ring = g.collectives[index], block.ring
        x.window = block.offset + (ring and (k - 1) % 2 * ring.layers * ring.stride or x.offset - block.base)
    end
end

-- Parameters whose layers lie in the windows of several buckets.
local function place_partial(g)
    local list, seen = {}, {}
    for _, bucket in ipairs(g.buckets) do
        for _, param in ipairs(bucket.params) do
            if bucket.partial and bucket.partial[param] and not seen[param] then
                seen[param], list[#list + 1] = true, param
            end
        end
    end
    layer_runs(list, function(param, l)
        local x = g.collectives[bucket_spans.bucket_of(g, param, l)]
        return x.window + param.flat.offset + l * param.flat.stride - x.offset
    end, function(param, offset, run) param.window = { offset = offset, run = run } end)
end

function windows.run(g, config)
    if not g.sharded.gradients then return true end
    local list = blocks_of(g)
    set_times(g, list)
    g.windows = { elements = pack(list), waits = false }
    note_waits(g, list)
    for _, block in ipairs(list) do
        if block.ring then note_ring_waits(g, block) end
        place(g, block)
        local names = {}
        for i, bucket in ipairs(block.buckets) do names[i] = tostring(bucket) end
        graph.decide(g, "window of bucket " .. table.concat(names, ", "), ("%d elements"):format(block.size),
            block.ring and "the layers of a loop take turns in two windows"
            or "from the first write of its gradients until the next bucket is complete")
    end
    place_partial(g)
    for _, joint in ipairs(g.joints) do joint.window = joint.members[1].window end
    return true
end

return windows
