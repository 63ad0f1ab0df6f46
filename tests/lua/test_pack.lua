-- Placement of values in memory: pack against a simple rule with the same result, and its sets of ranges.
local pack = require "passes.pack"
local ranges = require "base.ranges"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local rng = 1
-- A whole number in 1 .. n, the same sequence in every run.
local function draw(n)
    rng = (rng * 48271) % 2147483647
    return rng % n + 1
end

-- The rule: the largest block first, each at the lowest address where no earlier one lies at the same time.
local function plainly(blocks)
    local order, offsets = table.move(blocks, 1, #blocks, 1, {}), {}
    local number = {}
    for i, block in ipairs(blocks) do number[block] = i end
    table.sort(order, function(a, b)
        if a.size ~= b.size then return a.size > b.size end
        return number[a] < number[b]
    end)
    for i, block in ipairs(order) do
        local offset, k = 0, 1
        while k < i do
            local other, at = order[k], offsets[order[k]]
            local together = block.from <= other.to and other.from <= block.to
            if together and offset < at + other.size and at < offset + block.size then
                offset, k = at + other.size, 1
            else
                k = k + 1
            end
        end
        offsets[block] = offset
    end
    return offsets
end

add("every block is where the simple rule places it", function(t)
    for _ = 1, 60 do
        local blocks, last = {}, draw(40)
        for i = 1, draw(50) do
            local a, b = draw(last), draw(last)
            blocks[i] = { size = 16 * draw(5), from = math.min(a, b), to = math.max(a, b) }
        end
        local wanted, height = plainly(blocks), 0
        local found = pack(blocks)
        for i, block in ipairs(blocks) do
            t.equal(block.offset, wanted[block], "block " .. i)
            height = math.max(height, block.offset + block.size)
        end
        t.equal(found, height)
    end
end)

add("a set of ranges is the set of its numbers", function(t)
    local set, has = ranges.new(), {}
    for _ = 1, 400 do
        local lo = draw(300)
        local hi, new, reached = lo + draw(9) - 1, false, nil
        for x = lo, hi - 1 do
            reached = reached or has[x] and x
        end
        while reached and has[reached] do reached = reached + 1 end
        t.equal(set:meets(lo, hi), reached or nil)
        for x = lo, hi - 1 do new, has[x] = new or not has[x], true end
        t.equal(set:add(lo, hi), new)
    end
end)

return tests
