-- chunks: windows for parameters of which each rank has only its own cuts. A chunk, the bucket of a layer, is gathered
-- before its first use in a pass over a micro-batch, and its window is free behind the last one.
--
--   forward     need fc1 ; h = fc1(x) ; need fc2 ; y = fc2(h)
--   backward    d_h = fc2_dx(d_y)                                fc2, which forward used last, is still there
--               need fc1 ; ...
--
-- A pass needs chunks in an order that is known here. At the need of one the gather of that `prefetch` places behind it
-- starts. The layers of a loop have a ring of prefetch + 1 windows: layer l has window l % (prefetch + 1), so a gather
-- takes the window of the layer that has just been left. Any other chunk has a window from the start of its gather to
-- its last use in each pass; chunks that are never there together share memory. An evaluation needs no chunk twice, so
-- those that both of its passes use stay from one to the other.
local gathered = require "passes.gathered"
local graph = require "graph.graph"
local pack = require "passes.pack"

local chunks = { name = "chunks", doc = "windows for parameters that are gathered before use" }

-- In this order on one line of time.
local PASSES = { "forward", "evaluation", "backward" }

-- The number of the bucket of each parameter; of layers of a loop the first.
local function buckets_of(g)
    local of = {}
    for i, bucket in ipairs(g.buckets) do
        for _, param in ipairs(bucket.collected and {} or bucket.params) do of[param] = of[param] or i end
    end
    return of
end

--- Calls f(param) for each trained parameter that a node reads.
function chunks.each_read(node, f)
    for _, t in ipairs(graph.reads(node)) do
        for _, param in ipairs(t.kind == "param" and graph.members(t.param) or {}) do
            if param.used then f(param) end
        end
    end
end

-- The uses of chunks in a pass, in order: { bucket, node, at, last, count, skip, loop }. node: the first that reads it,
-- in the loop if it has layers; at, last: places in the body from the first such node to the last; count: chunks that
-- the use needs, one behind the other; skip: layers of the loop at whose iteration the chunk is there already.
local function uses_of(g, body, of)
    local list, known = {}, {}
    for position, outer in ipairs(body) do
        graph.walk({ outer }, function(node)
            chunks.each_read(node, function(param)
                local bucket = of[param]
                local layered = g.buckets[bucket].of ~= nil
                local key = layered and outer or bucket
                local use = known[key]
                if not use then
                    use = { bucket = bucket, node = layered and node or outer, at = position, skip = 0,
                        count = layered and param.count or 1, loop = layered and outer or nil }
                    known[key], list[#list + 1] = use, use
                    use.rank = #list
                end
                use.last = position
            end)
        end)
    end
    table.sort(list, function(a, b)         -- what all iterations of a loop share must be there before the loop
        if a.at ~= b.at or (a.loop == nil) == (b.loop == nil) then return a.rank < b.rank end
        return a.loop == nil
    end)
    return list
end

-- The chunks that stay behind the forward pass: the one that it uses last, and those that an evaluation uses again.
local function staying(forward, evaluation)
    local stays, last, again = {}, 0, {}
    for _, use in ipairs(evaluation) do again[use.bucket] = not use.loop end
    for _, use in ipairs(forward) do last = math.max(last, use.last) end
    for _, use in ipairs(forward) do
        if use.last == last or again[use.bucket] and not use.loop then stays[use.bucket] = true end
    end
    return stays
end

-- Leaves out of a later pass what is there already. Of a loop's layers that is the last one, with which a reversed loop
-- begins.
local function leave_out(list, stays)
    for _, use in ipairs(list) do
        local there = stays[use.bucket] and (not use.loop or use.loop.step < 0)
        if there then use.count, use.skip = use.count - 1, 1 end
    end
end

-- The order of a pass as numbers of buckets; notes at its nodes which place of the order they need.
local function order_of(g, name, list)
    local order = {}
    for _, use in ipairs(list) do
        use.first = #order
        if use.count > 0 then
            use.node.gathers = use.node.gathers or {}
            table.insert(use.node.gathers, { pass = name, first = use.first, loop = use.loop, skip = use.skip })
        end
        for i = 0, use.count - 1 do             -- the first bucket of a loop has its last layer
            local back = use.loop and use.loop.step > 0 and use.count - 1 - i or i + use.skip
            order[#order + 1] = use.bucket + (use.loop and back or 0)
        end
    end
    return order
end

-- The place in the body at which the gather of place k of the order starts.
local function start_of(list, k, prefetch)
    local at = 1
    for _, use in ipairs(list) do
        if use.count > 0 and use.first <= math.max(0, k - prefetch) then at = use.at end
    end
    return at
end

-- The time of each bucket in each pass, as { from, to } on the line of all passes.
local function spans_of(g, uses, prefetch)
    local spans, before = {}, 0
    for _, name in ipairs(PASSES) do
        for _, use in ipairs(uses[name]) do
            local of = spans[use.bucket] or {}
            local from = use.count > 0 and start_of(uses[name], use.first, prefetch) or use.at
            local span = of[name] or { from = before + from }
            span.to = before + use.last
            spans[use.bucket], of[name] = of, span
        end
        before = before + #g[name]
    end
    return spans
end

-- When the window of a chunk is in use. One that stays is there from the forward pass to its last use.
local function times_of(spans, stays)
    local times = {}
    for _, name in ipairs(PASSES) do times[#times + 1] = spans[name] end
    return stays and { { from = times[1].from, to = times[#times].to } } or times
end

-- A block of memory for each chunk, or for the ring of a loop.
local function blocks_of(g, spans, stays, slots)
    local list = {}
    for i, bucket in ipairs(g.buckets) do
        local item = bucket.of
        if spans[i] then
            local block = { bucket = i, params = bucket.params, base = item and item.offset or bucket.offset,
                size = bucket.gathered, times = times_of(spans[i], stays[i]), count = item and item.count or 1 }
            if item then
                block.slots, block.stride = math.min(slots, item.count), bucket.gathered
                block.size = block.slots * bucket.gathered
                if block.slots < item.count then
                    block.ring = { slots = block.slots, region = item.params[1].region, stride = bucket.gathered }
                end
            end
            list[#list + 1] = block
        end
    end
    return list
end

local function place(g, block)
    for _, param in ipairs(block.params) do
        local bucket = g.buckets[block.bucket + block.count - 1]        -- of layer 0
        local at = gathered.place(bucket, param.flat.offset)
        param.chunk = { offset = block.offset + at, ring = block.ring,
            stride = block.stride or gathered.place(bucket, param.flat.offset + param.flat.stride) - at }
    end
    for i = 0, block.count - 1 do
        local l = block.count - 1 - i
        g.chunks.places[block.bucket + i] = block.offset + (block.slots and l % block.slots * block.stride or 0)
    end
    graph.decide(g, "window of chunk " .. (block.count > 1 and ("%d to %d"):format(block.bucket, block.bucket
        + block.count - 1) or block.bucket), ("%d elements"):format(block.size), block.ring
        and ("the layers of a loop take turns in %d windows"):format(block.slots)
        or "from the start of its gather to its last use in each pass")
end

function chunks.run(g, config)
    if not g.sharded.parameters then return true end
    local of, uses = buckets_of(g), {}
    for _, name in ipairs(PASSES) do uses[name] = uses_of(g, g[name], of) end
    local stays = staying(uses.forward, uses.evaluation)
    leave_out(uses.evaluation, stays)
    leave_out(uses.backward, stays)
    g.chunks = { prefetch = config.prefetch, orders = {}, places = {}, sent = false }
    for _, bucket in ipairs(g.buckets) do g.chunks.sent = g.chunks.sent or bucket.half or false end
    for _, name in ipairs(PASSES) do g.chunks.orders[name] = order_of(g, name, uses[name]) end
    local blocks = blocks_of(g, spans_of(g, uses, config.prefetch), stays, config.prefetch + 1)
    g.chunks.elements = pack(blocks)
    for _, block in ipairs(blocks) do place(g, block) end
    for _, joint in ipairs(g.joints) do joint.chunk = joint.members[1].chunk end
    return true
end

return chunks
