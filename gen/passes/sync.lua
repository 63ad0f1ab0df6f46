-- sync: barriers. Workers share the tiles of one kernel and run ahead into the next; a kernel that
-- reads what an earlier one wrote, or writes where an earlier one read or wrote, must wait.
--
--   y = linear(x, w) ; barrier ; r = relu(y)
--
-- Works on places, not on names, so memory reuse is seen. A loop body is walked twice: the second
-- walk finds what one iteration needs from the one before.
local graph = require "graph.graph"
local ranges = require "base.ranges"

local sync = { name = "sync", doc = "barriers between kernels that share memory" }

-- The arena of a tensor, and the elements of it that the tensor has: lo .. hi - 1.
local function place_of(t)
    local p = t.place
    local n = math.max(p.stride or 0, graph.places(t))
    return p.arena .. (p.arena == "batch" and t.name or ""), p.offset,
        p.offset + (p.slots > 1 and p.stride * p.slots or n)
end

-- Memory as a set of ranges per arena.
local function meets(memory, t)
    local arena, lo, hi = place_of(t)
    return memory[arena] and memory[arena]:meets(lo, hi)
end

local function add(memory, t)
    local arena, lo, hi = place_of(t)
    memory[arena] = memory[arena] or ranges.new()
    memory[arena]:add(lo, hi)
end

-- Whether a node touches what was written, or writes what was read, since the last barrier.
local function must_wait(node, since)
    for _, t in ipairs(graph.reads(node)) do
        if meets(since.written, t) then return true end
    end
    for _, out in ipairs(graph.writes(node)) do
        if meets(since.written, out.tensor) or meets(since.read, out.tensor) then return true end
    end
    return false
end

-- since: what was read and written since the last barrier.
local function walk(body, since)
    for _, node in ipairs(body) do
        if node.op == "times" then
            walk(node.body, since)
            walk(node.body, since)
        else
            node.barrier = node.barrier or must_wait(node, since) or nil
            if node.barrier then since.read, since.written = {}, {} end
            for _, t in ipairs(graph.reads(node)) do add(since.read, t) end
            for _, out in ipairs(graph.writes(node)) do add(since.written, out.tensor) end
        end
    end
end

function sync.run(g)
    for _, body in ipairs { g.forward, g.evaluation, g.backward, g.views } do
        walk(body, { read = {}, written = {} })     -- each becomes a function that ends in a barrier
    end
end

return sync
