-- pack: places blocks of memory that are in use for a while so that no two share an address at one time.
--
--   a 64 elements, from 1 to 3        a at 0
--   b 64 elements, from 2 to 4   ->   b at 64
--   c 32 elements, from 4 to 5        c at 0
--
-- The largest block comes first, each at the lowest address that is free while it is in use. Positions in time
-- are the leaves of a binary tree. A block is noted at the few nodes that together cover its time (`whole`) and,
-- with them, at all nodes above (`some`), so that placing n blocks takes about n log n steps.
local ranges = require "base.ranges"

-- Calls f(node, covered) for the nodes above from .. to, and with covered = true for those that make it up.
-- node stands for the positions low .. high.
local function visit(node, low, high, from, to, f)
    if from <= low and high <= to then return f(node, true) end
    f(node, false)
    local middle = (low + high) // 2
    if from <= middle then visit(2 * node, low, middle, from, to, f) end
    if to > middle then visit(2 * node + 1, middle + 1, high, from, to, f) end
end

-- Notes that offset .. offset + size - 1 is taken from block.from to block.to.
local function take(tree, block)
    local lo, hi = block.offset, block.offset + block.size
    visit(1, 1, tree.last, block.from, block.to, function(node, covered)
        local some, whole = tree.some, tree.whole
        some[node] = some[node] or ranges.new()
        some[node]:add(lo, hi)
        if covered then
            whole[node] = whole[node] or ranges.new()
            whole[node]:add(lo, hi)
        end
    end)
end

-- What is taken at any time of a block, as a list of sets.
local function taken(tree, block)
    local sets = {}
    visit(1, 1, tree.last, block.from, block.to, function(node, covered)
        sets[#sets + 1] = (covered and tree.some or tree.whole)[node]
    end)
    return sets
end

-- The lowest offset at which none of these sets has one of the next `size` numbers.
local function lowest_free(sets, size)
    local offset, moved = 0, true
    while moved do
        moved = false
        for _, set in ipairs(sets) do
            local behind = set:meets(offset, offset + size)
            while behind do
                offset, moved = behind, true
                behind = set:meets(offset, offset + size)
            end
        end
    end
    return offset
end

--- Sets `offset` of each block { size, from, to }, whose times are whole numbers from 1 on; returns the height
--- of all of them together.
return function(blocks)
    local order, tree = table.move(blocks, 1, #blocks, 1, {}), { some = {}, whole = {}, last = 1 }
    for i, block in ipairs(order) do
        block.rank = i
        tree.last = math.max(tree.last, block.to)
    end
    table.sort(order, function(a, b)
        if a.size ~= b.size then return a.size > b.size end
        return a.rank < b.rank
    end)
    local height = 0
    for _, block in ipairs(order) do
        block.offset = lowest_free(taken(tree, block), block.size)
        take(tree, block)
        height = math.max(height, block.offset + block.size)
    end
    return height
end
