-- pack: places blocks of memory, each with a lifetime, so that blocks alive at the same time do not overlap.
--
--   a 64 elements, from 1 to 3        a at 0
--   b 64 elements, from 2 to 4   ->   b at 64
--   c 32 elements, from 4 to 5        c at 0
--
-- The largest block comes first, each at the lowest address that is free while it is in use. Positions in time
-- are the leaves of a binary tree; node n stands for what its children 2n and 2n + 1 stand for together. A block
-- is noted in `whole` of the fewest nodes that make up its time, and in `some` of these and all nodes above, so
-- that placing n blocks takes about n log n steps.
local ranges = require "base.ranges"

-- The fewest nodes that together stand for the positions from .. to.
local function nodes_of(tree, from, to)
    local list, a, b = {}, tree.leaves + from, tree.leaves + to
    while a <= b do
        if a % 2 == 1 then list[#list + 1], a = a, a + 1 end
        if b % 2 == 0 then list[#list + 1], b = b, b - 1 end
        a, b = a // 2, b // 2
    end
    return list
end

-- Adds lo .. hi - 1 to the set of a node; false if all of it is there already.
local function add(sets, node, lo, hi)
    local set = sets[node]
    if not set then
        set = ranges.new()
        sets[node] = set
    end
    return set:add(lo, hi)
end

-- The times of a block, as a list of { from, to }.
local function times_of(block) return block.times or { block } end

-- Notes that a block has its memory.
local function take(tree, block)
    local lo, hi = block.offset, block.offset + block.size
    for _, time in ipairs(times_of(block)) do
        for _, node in ipairs(nodes_of(tree, time.from, time.to)) do
            add(tree.whole, node, lo, hi)
            while node > 0 and add(tree.some, node, lo, hi) do node = node // 2 end
        end
    end
end

-- The places that are taken at any time of a block, as a list of sets: blocks whose time is longer, then all others.
local function taken(tree, block)
    local sets = {}
    for _, time in ipairs(times_of(block)) do
        local a, b = tree.leaves + time.from, tree.leaves + time.to
        while a > 0 do
            sets[#sets + 1] = tree.whole[a]
            if b ~= a then sets[#sets + 1] = tree.whole[b] end      -- above where their ways meet, both are one
            a, b = a // 2, b // 2
        end
        for _, node in ipairs(nodes_of(tree, time.from, time.to)) do sets[#sets + 1] = tree.some[node] end
    end
    return sets
end

-- The lowest offset at which none of these sets has one of the next `size` numbers.
local function lowest_free(sets, size)
    local offset, i, passed = 0, 1, 0       -- passed: sets in a row that are free there
    while passed < #sets do
        local behind = sets[i]:meets(offset, offset + size)
        if behind then offset, passed = behind, 0 else i, passed = i % #sets + 1, passed + 1 end
    end
    return offset
end

--- Sets `offset` of each block { size, from, to }, or { size, times = { { from, to }, ... } } of one that is in use
--- several times; times are whole numbers from 1 on. Returns the height of all of them together.
return function(blocks)
    local order, tree = table.move(blocks, 1, #blocks, 1, {}), { some = {}, whole = {}, leaves = 2 }
    for i, block in ipairs(order) do
        block.rank = i
        for _, time in ipairs(times_of(block)) do
            while tree.leaves <= time.to do tree.leaves = 2 * tree.leaves end
        end
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
