-- sync: barriers. Workers share the tiles of one kernel and run ahead into the next; a kernel that
-- reads what an earlier one wrote, or writes where an earlier one read or wrote, must wait.
--
--   y = linear(x, w) ; barrier ; r = relu(y)
--
-- Works on places, not on names, so memory reuse is seen. A loop body is walked twice: the second
-- walk finds what one iteration needs from the one before. Behind a node with `fence` all workers wait anyway.
local graph = require "graph.graph"

local sync = { name = "sync", doc = "barriers between kernels that share memory" }

-- The places that an operand of a node covers, in all iterations. each: in iteration l of this loop it is only slot l.
local function range(t)
    local p = t.place
    local places = graph.places(t)
    local last = p.slots > 1 and p.stride * (p.slots - 1) or 0
    return { arena = p.arena .. (p.arena == "batch" and t.name or ""), lo = p.offset, hi = p.offset + last + places,
        each = p.slots > 1 and not p.carry and t.scope or nil, stride = p.stride, n = places }
end

-- Whether two ranges of layers, the same distance apart, never meet: other places of each layer.
local function between_layers(a, b)
    if a.stride ~= b.stride or not a.each or not b.each then return false end
    local gap = (b.lo - a.lo) % a.stride
    return gap >= a.n and gap + b.n <= a.stride
end

-- Whether they are the same slots in two iterations of one loop.
local function other_iteration(a, b)
    return a.each and a.each == b.each and a.loop and a.loop == b.loop and a.walk ~= b.walk and a.lo == b.lo
        and a.stride == b.stride
end

local function overlaps(list, r)
    for _, other in ipairs(list) do
        if other.arena == r.arena and r.lo < other.hi and other.lo < r.hi and not between_layers(other, r)
            and not other_iteration(other, r) then
            return true
        end
    end
    return false
end

local function visit(node, state)
    local reads, writes, wait = {}, {}, false
    local function place(t)
        local r = range(t)
        r.loop, r.walk = state.loop, state.walk
        return r
    end
    for i, t in ipairs(graph.reads(node)) do
        reads[i] = place(t)
        wait = wait or overlaps(state.written, reads[i])
    end
    for i, out in ipairs(graph.writes(node)) do
        writes[i] = place(out.tensor)
        wait = wait or overlaps(state.written, writes[i]) or overlaps(state.read, writes[i])
    end
    if wait then node.barrier = true end
    if node.barrier or node.fence then state.read, state.written = {}, {} end
    if node.fence then return end
    table.move(reads, 1, #reads, #state.read + 1, state.read)
    table.move(writes, 1, #writes, #state.written + 1, state.written)
end

local function walk(body, state)
    for _, node in ipairs(body) do
        if node.op == "times" then
            for n = 1, 2 do
                state.loop, state.walk = node, n
                walk(node.body, state)
            end
            state.loop = nil
        else
            visit(node, state)
        end
    end
end

-- Sets the barriers of a body that is a function of its own, before and behind which all workers wait.
local function sync_body(body) walk(body, { read = {}, written = {} }) end

function sync.run(g)
    for _, body in ipairs { g.forward, g.evaluation, g.backward, g.boundary, g.views } do sync_body(body) end
    for _, f in ipairs(g.iterations) do sync_body { f.region } end
end

return sync
