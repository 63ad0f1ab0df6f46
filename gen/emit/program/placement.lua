-- placement: what a plan says of chunks that lie in host memory (passes/placement.lua): where each lies, and the bytes
-- that move between host and device in an update.
local ordered = require "base.ordered"
local pieces = require "passes.pieces"
local text = require "base.text"

local placement = {}

-- "h.3.ln_1.weight": the first parameter of a chunk.
local function first_name(bucket)
    local param = bucket.params[1]
    local l = param.count > 1 and (bucket.offset - param.flat.offset) // param.flat.stride or 0
    return (param.name:gsub("%%d", tostring(param.first + math.max(l, 0))))
end

-- How often a micro-step takes the own cut of a chunk up for a gather; one that stays in the pool comes up once.
local function uploads(g, i)
    local times, pool = 0, g.placement and g.placement.pool
    for _, name in ipairs { "forward", "backward" } do
        times = times + (ordered.find(g.chunks.orders[name], i) and 1 or 0)
    end
    return pool and pool.kept[i] and 1 or times
end

-- Bytes that move in an update of a rank with these pieces: { values_up = for gathers, gradients_down, gradients_up =
-- for additions and the norm, updated_up = values behind the update, total }.
local function moved(g, list, size)
    local sum = { values_up = 0, gradients_down = 0, gradients_up = 0, updated_up = 0 }
    for i, bucket in ipairs(g.buckets) do
        local n = (list[i][2] - list[i][1]) * size
        if bucket.values_on_host then
            sum.values_up = sum.values_up + n * uploads(g, i) * g.accumulate
            sum.gradients_down = sum.gradients_down + n * g.accumulate
            sum.gradients_up = sum.gradients_up + n * g.accumulate      -- each addition but the first one, and the norm
        elseif bucket.state_on_host then
            sum.gradients_down = sum.gradients_down + n
            sum.updated_up = sum.updated_up + n
        end
    end
    sum.total = sum.values_up + sum.gradients_down + sum.gradients_up + sum.updated_up
    return sum
end

-- The same of the rank that moves most.
local function most_moved(g, config, size)
    local most
    for _, list in ipairs(pieces.of(g, config.ranks)) do
        local sum = moved(g, list, size)
        if not most or sum.total > most.total then most = sum end
    end
    return most
end

local function chunk_rows(g, config, size)
    local list, own, placed = {}, pieces.most(g, config.ranks), g.placement or {}
    local function place(on_host) return on_host and "host" or "device" end
    for i, bucket in ipairs(g.buckets) do
        if not bucket.collected then
            local pool, values = placed.pool, place(bucket.values_on_host)
            list[#list + 1] = { chunk = i, from = first_name(bucket), elements = bucket.n, own_bytes = own[i] * size,
                values = values, gradient = values, state = place(bucket.state_on_host),
                pooled = pool and pool.kept[i] and true or false,
                kept = placed.kept and placed.kept[i] or false }
        end
    end
    return list
end

--- Facts for the plan; nil: all lies on the device. rates: of the device, { link_bytes }, or nil.
function placement.facts(g, config, arenas, rates)
    local c = config.placement
    if not c then return nil end
    if not config.placed then return { policy = c.given, changes = false, target = config.target } end
    local size, bytes = g.real == "f64" and 8 or 4, { device = 0, pinned = 0, host = 0 }
    for _, arena in ipairs(arenas) do bytes[arena.memory] = bytes[arena.memory] + arena.bytes end
    local sum = most_moved(g, config, size)
    return { policy = c.given, changes = true, margin_ratio = c.policy == "auto" and c.ratio or nil,
        device_bytes = bytes.device, pinned_bytes = bytes.pinned, budget = config.budget,
        pool_bytes = g.placement and g.placement.pool and g.placement.pool.elements * size or 0,
        chunks = chunk_rows(g, config, size), moved = sum, predicted_us = sum.total / rates.link_bytes * 1e6 }
end

--- The plan's line about it.
function placement.line(facts)
    if not facts.changes then
        return ("%q changes nothing: the target %q has one memory, of the host"):format(facts.policy, facts.target)
    end
    local values, states = 0, 0
    for _, chunk in ipairs(facts.chunks) do
        values = values + (chunk.values == "host" and 1 or 0)
        states = states + (chunk.state == "host" and 1 or 0)
    end
    local commas = text.commas
    return ("%q: of %d chunks %d have their values on the host, %d their state; %s bytes on the device%s, %s pinned on "
        .. "the host"):format(facts.policy, #facts.chunks, values, states, commas(facts.device_bytes), facts.budget
        and (" of %s"):format(commas(facts.budget)) or "", commas(facts.pinned_bytes))
end

local COLUMNS = { { least = 5, right = true }, { name = true }, { right = true }, { right = true }, { least = 6 },
    { least = 8 }, { least = 6 } }

--- The table of the chunks, and its columns.
function placement.rows(facts)
    local rows = { { "chunk", "from", "elements", "own bytes", "values", "gradient", "state" } }
    for i, chunk in ipairs(facts.chunks) do
        rows[i + 1] = { tostring(chunk.chunk), chunk.from, text.commas(chunk.elements), text.commas(chunk.own_bytes),
            chunk.values .. (chunk.pooled and ", pool" or chunk.kept and ", margin" or ""), chunk.gradient,
            chunk.state }
    end
    return rows, COLUMNS
end

--- The plan's line about what moves.
function placement.link(facts)
    local commas, moved = text.commas, facts.moved
    return ("an update moves %s bytes of a rank between host and device, %.3g ms: values up %s, gradients down %s and "
        .. "up %s, updated values up %s"):format(commas(moved.total), facts.predicted_us / 1e3, commas(moved.values_up),
        commas(moved.gradients_down), commas(moved.gradients_up), commas(moved.updated_up))
end

return placement
