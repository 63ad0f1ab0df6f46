-- sync: barriers. Workers share the tiles of a kernel and run ahead into the next kernel. A kernel waits if it
-- reads memory written, or writes memory read or written, by a kernel since the last barrier.
--
--   y = linear(x, w) ; barrier ; r = relu(y)
--
-- Memory places are compared, not names, so that reuse of memory counts. A loop body is walked twice: the second
-- walk finds conflicts with the iteration before. After a node with `fence` all workers wait anyway. A loop over parts
-- may have no iteration, so a barrier inside of it counts for nothing outside: what it needs stands before the loop.
local graph = require "graph.graph"
local ranges = require "base.ranges"

local sync = { name = "sync", doc = "barriers between kernels that share memory" }

-- The range lo .. hi - 1 of a tensor in its arena, in elements, over all iterations. each: the loop for whose
-- iterations the tensor has slots of `n` elements, `stride` apart; a node touches only the slot of its iteration. A
-- loop over parts of a run touches another part in each iteration. columns: those of the last axis that it touches.
local function place_of(t, loop, walk, columns)
    local p, n = t.place, graph.places(t)
    local arena = p.arena == "batch" and "batch " .. t.name or p.arena
    local of_parts = t.kind == "range" and t.scope and t.scope.part
    local each, row = graph.is_half(t) and 2 or 1, t.shape[#t.shape]     -- elements in one of the program's type
    if columns and p.slots == 1 and (row | columns.first - 1 | columns.width) % each == 0 then
        local lo, width, stride = p.offset + (columns.first - 1) // each, columns.width // each, row // each
        return { arena = arena, lo = lo, hi = lo + n - stride + width, columns = true, stride = stride, n = width }
    end
    if p.slots == 1 and not of_parts then return { arena = arena, lo = p.offset, hi = p.offset + n } end
    return { arena = arena, lo = p.offset, hi = p.offset + p.stride * (p.slots - 1) + n,
        each = not p.carry and t.scope or nil, stride = p.stride, n = n, loop = loop, walk = walk }
end

-- Whether the slots of two tensors have the same stride and interleave without overlap.
local function between_slots(a, b)
    if a.stride ~= b.stride then return false end
    local gap = (b.lo - a.lo) % a.stride
    return gap >= a.n and gap + b.n <= a.stride
end

-- Whether a and b are different slots of one tensor: slots of two iterations of the walked loop.
local function other_iteration(a, b)
    return a.loop and a.loop == b.loop and a.walk ~= b.walk and a.each == b.each and a.lo == b.lo
        and a.stride == b.stride
end

-- Whether range r overlaps the memory. Memory has, per arena, the ranges of tensors without slots, and a list of the
-- few tensors with slots.
local function meets(memory, r)
    local arena = memory[r.arena]
    if not arena then return false end
    if arena.plain:meets(r.lo, r.hi) then return true end
    for _, other in ipairs(arena.slotted) do
        if r.lo < other.hi and other.lo < r.hi
            and not (r.each and (between_slots(other, r) or other_iteration(other, r))
                or r.columns and other.columns and between_slots(other, r)) then
            return true
        end
    end
    return false
end

local function add(memory, r)
    local arena = memory[r.arena] or { plain = ranges.new(), slotted = {} }
    memory[r.arena] = arena
    if r.each or r.columns then table.insert(arena.slotted, r) else arena.plain:add(r.lo, r.hi) end
end

-- The places that a node reads and writes, and why it must wait for what was done since the last barrier; nil: it need
-- not. since: memory read and written since then; loop, walk: the walked loop and the number of the walk, 1 or 2.
local function touched(node, since)
    local reads, writes, wait = {}, {}, nil
    for i, t in ipairs(graph.reads(node)) do
        reads[i] = place_of(t, since.loop, since.walk)
        wait = wait or meets(since.written, reads[i]) and ("reads %s, written since the last barrier"):format(t.name)
    end
    for i, out in ipairs(graph.writes(node)) do
        local t = out.tensor
        writes[i] = place_of(t, since.loop, since.walk, out.columns)
        wait = wait or (meets(since.written, writes[i]) or meets(since.read, writes[i]))
            and ("the memory of %s was in use since the last barrier"):format(t.name)
    end
    return reads, writes, wait
end

local function note_barrier(g, node, name, wait)
    if wait and not node.barrier then graph.decide(g, name, "barrier", wait) end
    node.barrier = node.barrier or wait and true or nil
end

local function add_all(since, reads, writes)
    for _, r in ipairs(reads) do add(since.read, r) end
    for _, r in ipairs(writes) do add(since.written, r) end
end

-- Decides whether a node needs a barrier.
local function visit(g, node, since)
    local reads, writes, wait = touched(node, since)
    local first = graph.writes(node)[1]
    note_barrier(g, node, first and first.tensor.name or node.op, wait)
    if node.barrier or node.fence then since.read, since.written = {}, {} end
    if not node.fence then add_all(since, reads, writes) end
end

local walk

-- A loop over parts: whether all workers wait before it, and the barriers between its own nodes.
local function visit_parts(g, loop, since)
    local all, why = {}, nil
    graph.walk(loop.body, function(node)
        local reads, writes, wait = touched(node, since)
        all[#all + 1], why = { reads, writes }, why or wait
    end)
    note_barrier(g, loop, ("parts of %s"):format(loop.name), why)
    if loop.barrier then since.read, since.written = {}, {} end
    local inside = { read = {}, written = {}, loop = loop }
    for n = 1, 2 do
        inside.walk = n
        walk(g, loop.body, inside)
    end
    for _, places in ipairs(all) do add_all(since, places[1], places[2]) end
end

walk = function(g, body, since)
    for _, node in ipairs(body) do
        if node.op == "times" and node.part then
            visit_parts(g, node, since)
        elseif node.op == "times" then
            for n = 1, 2 do
                since.loop, since.walk = node, n
                walk(g, node.body, since)
            end
            since.loop = nil
        else
            visit(g, node, since)
        end
    end
end

-- Sets the barriers of a body that is a function of its own: all workers wait before and after it.
local function sync_body(g, body) walk(g, body, { read = {}, written = {} }) end

function sync.run(g)
    for _, body in ipairs { g.forward, g.evaluation, g.backward, g.boundary, g.views } do sync_body(g, body) end
    for _, f in ipairs(g.iterations) do sync_body(g, { f.region }) end
    return true
end

return sync
