-- sync: barriers. Workers share the tiles of one kernel and run ahead into the next; a kernel that
-- reads what an earlier one wrote, or writes where an earlier one read or wrote, must wait.
--
--   y = linear(x, w) ; barrier ; r = relu(y)
--
-- Works on places, not on names, so memory reuse is seen. A loop body is walked twice: the second
-- walk finds what one iteration needs from the one before.
local graph = require "graph.graph"

local sync = { name = "sync", doc = "barriers between kernels that share memory" }

local function range(t)
    local p = t.place
    local lo = p.offset
    local n = math.max(p.stride or 0, graph.places(t))
    local hi = lo + (p.slots > 1 and p.stride * p.slots or n)
    return { arena = t.place.arena .. (t.place.arena == "batch" and t.name or ""), lo = lo, hi = hi }
end

local function overlaps(list, r)
    for _, other in ipairs(list) do
        if other.arena == r.arena and r.lo < other.hi and other.lo < r.hi then return true end
    end
    return false
end

local function walk(body, state)
    for _, node in ipairs(body) do
        if node.op == "times" then
            walk(node.body, state)
            walk(node.body, state)
        else
            local reads, writes, wait = {}, {}, false
            for i, t in ipairs(graph.reads(node)) do
                reads[i] = range(t)
                wait = wait or overlaps(state.written, reads[i])
            end
            for i, out in ipairs(graph.writes(node)) do
                writes[i] = range(out.tensor)
                wait = wait or overlaps(state.written, writes[i]) or overlaps(state.read, writes[i])
            end
            if wait then
                node.barrier = true
            end
            if node.barrier then state.read, state.written = {}, {} end
            table.move(reads, 1, #reads, #state.read + 1, state.read)
            table.move(writes, 1, #writes, #state.written + 1, state.written)
        end
    end
end

function sync.run(g)
    for _, body in ipairs { g.forward, g.evaluation, g.backward, g.views } do
        walk(body, { read = {}, written = {} })     -- each becomes a function that ends in a barrier
    end
end

return sync
