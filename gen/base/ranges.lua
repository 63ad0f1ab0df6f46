-- ranges: a set of whole numbers, kept as runs lo .. hi - 1 in rising order. Runs that touch become one, so
-- that memory without gaps is a single run, however many blocks lie in it.
local ranges = {}
ranges.__index = ranges

--- An empty set.
function ranges.new()
    return setmetatable({ lo = {}, hi = {} }, ranges)
end

-- The first run that ends behind x; one more than there are runs if none does.
local function first_behind(self, x)
    local low, high = 1, #self.hi + 1
    while low < high do
        local middle = (low + high) // 2
        if self.hi[middle] > x then high = middle else low = middle + 1 end
    end
    return low
end

--- Adds the numbers lo .. hi - 1.
function ranges:add(lo, hi)
    if lo >= hi then return end
    local first = first_behind(self, lo - 1)       -- a run that ends at lo touches
    local last = first
    while self.lo[last] and self.lo[last] <= hi do last = last + 1 end
    if last == first then
        table.insert(self.lo, first, lo)
        table.insert(self.hi, first, hi)
        return
    end
    self.lo[first] = math.min(lo, self.lo[first])
    self.hi[first] = math.max(hi, self.hi[last - 1])
    for _ = first + 1, last - 1 do
        table.remove(self.lo, first + 1)
        table.remove(self.hi, first + 1)
    end
end

--- The end of the first run that has a number of lo .. hi - 1; nil if none has.
function ranges:meets(lo, hi)
    local first = first_behind(self, lo)
    local start = self.lo[first]
    return start and start < hi and lo < hi and self.hi[first] or nil
end

return ranges
