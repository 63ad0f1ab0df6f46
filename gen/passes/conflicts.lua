-- conflicts: whether nodes touch the same memory, so that one must wait for the other. Places are compared, not names,
-- so that reuse of memory counts.
local graph = require "graph.graph"
local ranges = require "base.ranges"

local conflicts = {}

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

--- The places that a node reads and writes, and why it must wait for what was done since the last barrier; nil: it need
--- not. since: memory read and written since then; loop, walk: the walked loop and the number of the walk, 1 or 2.
function conflicts.touched(node, since)
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

--- Adds places to the memory read and written.
function conflicts.add(since, reads, writes)
    for _, r in ipairs(reads) do add(since.read, r) end
    for _, r in ipairs(writes) do add(since.written, r) end
end

return conflicts
