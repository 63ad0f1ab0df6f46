-- chunks: windows for parameters of which each rank has only its own cuts. A chunk, a bucket whose values are divided
-- too, is gathered before its first use in a pass over a micro-batch, and its window is free behind the last one.
--
--   forward     need fc1 ; h = fc1(x) ; need fc2 ; y = fc2(h)
--   backward    d_h = fc2_dx(d_y)                                fc2, which forward used last, is still there
--               need fc1 ; ...
--
-- A pass needs chunks in an order that is known here (g.chunks.orders). At the need of one the gather of that
-- `prefetch` places behind it starts. A chunk is a layer, or has a size of its own: then it may begin and end inside of
-- a layer.
-- For any reader of the graph, on any target:
--
--   bucket_spans.number(entry, l)                 the place k of the order that a node needs in layer l of its loop;
--                                                 entry: of node.gathers, one for each chunk that it may need
--   g.chunks.orders[entry.pass][k + 1]            the number of the bucket at place k
--   g.chunks.places[bucket]                       where its window begins
--   bucket_spans.layer_at(param.chunk, param, l)  where layer l of a parameter lies, in the window of its bucket
--
-- If chunks are layers, those of a loop have a ring of prefetch + 1 windows: layer l has window l % (prefetch + 1), so
-- a gather takes the window of the layer that has just been left. Any other chunk has a window from the start of its
-- gather to its last use in each pass; chunks that are never there together share memory. An evaluation needs no chunk
-- twice, so those that both of its passes use stay from one to the other.
local bucket_spans = require "graph.bucket_spans"
local diag = require "base.diag"
local graph = require "graph.graph"
local layer_runs = require "passes.layer_runs"
local ordered = require "base.ordered"
local pack = require "passes.pack"
local text = require "base.text"

local chunks = { name = "chunks", doc = "windows for parameters that are gathered before use" }

-- In this order on one line of time.
local PASSES = { "forward", "evaluation", "backward" }

-- The chunks that stay behind the forward pass: those that its last use is of, and those that an evaluation uses again.
local function staying(forward, evaluation)
    local stays, last = {}, 0
    for _, span in ipairs(forward) do last = math.max(last, span.to) end
    for _, span in ipairs(forward) do
        local again = false
        for _, other in ipairs(evaluation) do again = again or other.bucket == span.bucket end
        if span.to == last or again then stays[span.bucket] = true end
    end
    return stays
end

-- The spans of a pass whose chunks it must gather, and the order of these chunks; notes at nodes which place of the
-- order they need.
local function order_of(name, spans, stays)
    local order, gathered = {}, ordered.collect(spans, function(span)
        return (name == "forward" or not stays[span.bucket]) and span or nil
    end)
    for k, span in ipairs(gathered) do
        order[k] = span.bucket
        bucket_spans.note(span.first, "gathers", k - 1, span.param).pass = name
    end
    return gathered, order
end

-- Adds to times[bucket] = { [pass] = { from, to }, ... } those of a pass, on the line of all passes, where it begins
-- behind `before`.
local function add_times(times, name, spans, gathered, prefetch, before)
    local starts = {}
    for k, span in ipairs(gathered) do starts[span.bucket] = gathered[math.max(1, k - prefetch)].from end
    for _, span in ipairs(spans) do
        times[span.bucket] = times[span.bucket] or {}
        times[span.bucket][name] = { from = before + (starts[span.bucket] or span.from), to = before + span.to }
    end
end

-- When memory for these buckets is in use: from the first of their times in each pass to the last; all the while if one
-- of them stays behind the forward pass.
local function joined(times, members, stays)
    local list, stay = {}, false
    for _, name in ipairs(PASSES) do
        local all
        for _, i in ipairs(members) do
            local time = times[i] and times[i][name]
            if time then
                all = all or { from = time.from, to = time.to }
                all.from, all.to = math.min(all.from, time.from), math.max(all.to, time.to)
            end
        end
        list[#list + 1] = all
    end
    for _, i in ipairs(members) do stay = stay or stays[i] end
    return stay and { { from = list[1].from, to = list[#list].to } } or list
end

-- A block of memory for each chunk, or for the ring of a loop.
local function blocks_of(g, times, stays, slots)
    local list = {}
    for i, bucket in ipairs(g.buckets) do
        local item = bucket.of
        if item and i == item.first_bucket then
            local members = {}
            for k = 0, item.count - 1 do members[k + 1] = i + k end
            local block = { members = members, times = joined(times, members, stays), stride = bucket.gathered,
                slots = math.min(slots, item.count) }
            block.size = block.slots * block.stride
            list[#list + 1] = block
        elseif not item and times[i] then
            list[#list + 1] = { members = { i }, times = joined(times, { i }, stays), size = bucket.gathered,
                stride = 0, slots = 1 }
        end
    end
    return list
end

-- Notes where the windows of a block begin. The last layer of a ring is the first of its buckets.
local function place(g, block)
    local count = #block.members
    for k, i in ipairs(block.members) do
        g.chunks.places[i] = block.offset + (count - k) % block.slots * block.stride
    end
    local first, last = block.members[1], block.members[count]
    graph.decide(g, "window of chunk " .. (count > 1 and ("%d to %d"):format(first, last) or first),
        ("%d elements"):format(block.size), block.slots < count
        and ("the layers of a loop take turns in %d windows"):format(block.slots)
        or "from the start of its gather to its last use in each pass")
end

local function place_parameters(g)
    local placed = ordered.collect(g.params, function(param)
        return param.used and g.chunks.places[bucket_spans.bucket_of(g, param, 0)] and param or nil
    end)
    layer_runs(placed, function(param, l)
        local i = bucket_spans.bucket_of(g, param, l)
        return g.chunks.places[i] + bucket_spans.gathered_at(g.buckets[i], param.flat.offset + l * param.flat.stride)
    end, function(param, offset, run) param.chunk = { offset = offset, run = run } end)
    for _, joint in ipairs(g.joints) do joint.chunk = joint.members[1].chunk end
end

-- The blocks of all windows, and the elements that they take together, if so many gathers run ahead. gathered: the
-- spans of each pass whose chunks it gathers; steps: how many steps it has.
local function blocks_for(g, spans, gathered, steps, stays, prefetch)
    local times, before = {}, 0
    for _, name in ipairs(PASSES) do
        add_times(times, name, spans[name], gathered[name], prefetch, before)
        before = before + steps[name]
    end
    local blocks = blocks_of(g, times, stays, prefetch + 1)
    return blocks, pack(blocks)
end

-- Bytes of all windows together with placement "const".
local CONST = 512 << 20

local function window_bytes(g) return g.chunks.elements * (g.real == "f64" and 8 or 4) end

-- Refuses windows that placement "const" has no room for.
local function check_const(g, config)
    local bytes, prefetch = window_bytes(g), g.chunks.prefetch
    if bytes <= CONST then return end
    diag.fail(config.placed.at, ('parallel: placement is "const", and with prefetch = %d the gathered values of this '
        .. "model take %s bytes, expected at most %s: %ssmaller chunks (chunk_size, a `times` of equal layers), or "
        .. 'placement = "host"'):format(prefetch, text.commas(bytes), text.commas(CONST), prefetch > 0
        and "prefetch = 0, " or ""), {})
end

function chunks.run(g, config)
    if not g.sharded.parameters then return true end
    local spans, steps = {}, {}
    for _, name in ipairs(PASSES) do
        spans[name], steps[name] = bucket_spans.list(g, g[name], bucket_spans.each_read)
    end
    local stays, gathered = staying(spans.forward, spans.evaluation), {}
    g.chunks = { prefetch = config.prefetch, orders = {}, places = {}, sent = config.sends_half }
    for _, name in ipairs(PASSES) do
        gathered[name], g.chunks.orders[name] = order_of(name, spans[name], stays)
    end
    local blocks
    local function with(prefetch)
        blocks, g.chunks.elements = blocks_for(g, spans, gathered, steps, stays, prefetch)
        g.chunks.prefetch = prefetch
    end
    with(config.prefetch)
    if config.placed and config.placed.policy == "const" then
        if config.prefetch_open and window_bytes(g) > CONST then with(0) end
        check_const(g, config)
    end
    for _, block in ipairs(blocks) do place(g, block) end
    place_parameters(g)
    return true
end

return chunks
