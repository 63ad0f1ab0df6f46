-- placement: where a rank's cuts of chunks lie between their uses: on the device, or in host memory.
--
--   state_on_host     the state: the update of these elements runs on the host
--   values_on_host    values and gradient too: values come up before each gather, gradients go down behind each sum
--
-- "auto" goes through the chunks as an eviction would, seen from the start of a cycle: the one whose first need lies
-- farthest goes first (eviction.lua). First their states go in this order, then their values and gradients, until the
-- plan is within memory.budget, as config.device_bytes counts it; if the last one was larger than need be, smaller ones
-- come back, values first:
--
--   budget        of 4 chunks, needed in the order 1 2 3 4, the host has
--   all           nothing
--   less          the state of 4, of 3
--   less          all states, values and gradient of 4
--   the least     all
--
-- Room that is left beside values on the host is a pool, before states come back: a chunk that lies on the host and is
-- needed forward and backward stays there between these uses, so that it comes up once per micro-step. By bytes of the
-- device values with their gradient save most of what moves, then the pool, then states. A program has these decisions
-- as literals, so they hold for any number of micro-steps, for a cycle that is gone on with in its midst, and before
-- any training.
local diag = require "base.diag"
local eviction = require "passes.eviction"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local pieces = require "passes.pieces"
local text = require "base.text"
local update_rule = require "passes.update_rule"

local placement = { name = "placement", doc = "where chunks lie between their uses" }

-- Bytes of an own cut's element in the count of gpu_margin_mem_ratio: f32.
local COUNTED = 4

-- Bytes that an array of the plan is a multiple of.
local PAGE = 4096

-- The chunks, numbers of buckets, in the order in which they go from the device: the farthest first need first.
local function going(g, sizes)
    local next, list = {}, {}
    for k, i in ipairs(g.chunks.orders.forward) do next[i] = k end
    for i, bucket in ipairs(g.buckets) do
        if not bucket.collected then list[#list + 1] = i end
    end
    table.sort(list, function(a, b) return eviction.before(a, b, next, sizes) end)
    return list
end

local function fits(g, config) return config.device_bytes(g) <= config.budget end

-- Puts the first n of these on the host: { bucket, field }.
local function put(g, moves, n)
    for k, move in ipairs(moves) do g.buckets[move[1]][move[2]] = k <= n or nil end
end

-- The moves of these chunks: all states, then all values.
local function moves_of(list)
    local moves = {}
    for _, field in ipairs { "state_on_host", "values_on_host" } do
        for _, i in ipairs(list) do moves[#moves + 1] = { i, field } end
    end
    return moves
end

-- Makes the fewest of these moves with which the device has at most `budget` bytes; returns their number.
local function make_fewest(g, config, moves)
    local low, high = 0, #moves
    while low < high do
        local middle = (low + high) // 2
        put(g, moves, middle)
        if fits(g, config) then high = middle else low = middle + 1 end
    end
    put(g, moves, low)
    return low
end

-- The last of n moves may have made more room than was missing: takes each one of `field` before it back that has room
-- now, the last one first.
local function take_back(g, config, moves, n, field)
    for k = n - 1, 1, -1 do
        local bucket = g.buckets[moves[k][1]]
        if moves[k][2] == field and (field == "values_on_host" or not bucket.values_on_host) then
            bucket[field] = nil
            bucket[field] = not fits(g, config) or nil
        end
    end
end

-- The chunks that gpu_margin_mem_ratio keeps on the device, as a set; all are on the host so far, with `least` bytes.
local function kept_by_margin(g, config, sizes, least)
    local limit, used, kept, set = (config.budget - least) * config.placed.ratio / 4, 0, {}, {}
    for i, bucket in ipairs(g.buckets) do
        local bytes = not bucket.collected and sizes[i] * COUNTED or 0
        if used + bytes >= limit then break end
        if not bucket.collected then used, kept[#kept + 1] = used + bytes, i end
    end
    local function stay(i, on_device)
        set[i] = on_device or nil
        put(g, moves_of { i }, on_device and 0 or 2)
    end
    for _, i in ipairs(kept) do stay(i, true) end
    while #kept > 0 and not fits(g, config) do stay(table.remove(kept), false) end
    return set
end

-- Adds the pool, if it has room for a chunk on the host that is needed forward and backward. All that stay there are
-- there when the backward pass begins, so they lie behind each other.
local function add_pool(g, config, sizes)
    local room = (config.budget - config.device_bytes(g)) // PAGE * PAGE // (g.real == "f64" and 8 or 4)
    local uses, kept, elements = {}, {}, 0
    for _, name in ipairs { "forward", "backward" } do
        for _, i in ipairs(g.chunks.orders[name]) do
            if g.buckets[i].values_on_host then uses[#uses + 1] = i end
        end
    end
    for k, step in ipairs((eviction.plan(uses, sizes, room, true))) do
        if not step.load then kept[uses[k]], elements = elements, elements + sizes[uses[k]] end
    end
    if elements == 0 then return end
    g.placement.pool = { elements = elements, kept = kept }
    table.insert(g.arenas, { name = "pool", elements = elements, doc = "values of chunks on the host, for backward" })
end

-- "auto": what is beyond the budget goes to the host.
local function fill(g, config, sizes)
    local list = going(g, sizes)
    local all = moves_of(list)
    put(g, all, #all)
    local least = config.device_bytes(g)
    if least > config.budget then return end            -- fit chooses another plan, or refuses this one
    local kept = kept_by_margin(g, config, sizes, least)
    g.placement.kept = kept
    local moves = moves_of(ordered.collect(list, function(i) return not kept[i] and i or nil end))
    local n = make_fewest(g, config, moves)
    take_back(g, config, moves, n, "values_on_host")
    add_pool(g, config, sizes)
    take_back(g, config, moves, n, "state_on_host")
end

local NAMES = { "values, gradient and state on the device", "values and gradient on the device, state on the host",
    "values, gradient and state on the host" }

local function explain(g, policy)
    for i, bucket in ipairs(g.buckets) do
        if not bucket.collected then
            local n = bucket.values_on_host and 3 or bucket.state_on_host and 2 or 1
            graph.decide(g, "chunk " .. i, NAMES[n], ("placement is %q"):format(policy))
        end
    end
end

-- Refuses what cannot be placed.
local function check(g, config)
    local c = config.placement
    if not g.sharded.parameters then
        diag.fail(c.at, ("parallel: placement is %q, and the model is too small to be divided into chunks: expected a "
            .. 'smaller min_chunk_size, or "device"'):format(c.given), {})
    end
    update_rule.refuse_whole(g, c.at, ("placement is %q"):format(c.given))
end

--- Sets g.placement, and for each bucket what of it is on the host. Nothing changes where all has room on the device,
--- or the target has one memory.
--- config.placed: config.placement, if the target has a memory of its own. config.device_bytes(g): what the plan takes
--- there as it is now.
function placement.run(g, config)
    if not config.placement then return true end
    check(g, config)
    if not config.placed then
        graph.decide(g, "placement", ("%q changes nothing"):format(config.placement.given), ("the target %q has one "
            .. "memory, of the host"):format(config.target))
        return true
    end
    local policy, sizes = config.placed.policy, pieces.most(g, config.ranks)
    g.placement = { policy = policy }
    if policy == "auto" then
        fill(g, config, sizes)
    else
        local all = moves_of(going(g, sizes))
        put(g, all, #all)
    end
    explain(g, policy)
    if not ordered.find(ordered.collect(g.buckets, function(b) return b.state_on_host or false end), true) then
        g.placement = nil
    end
    return true
end

return placement
