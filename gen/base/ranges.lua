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
    if high > 1 and self.hi[high - 1] <= x then return high end
    while low < high do
        local middle = (low + high) // 2
        if self.hi[middle] > x then high = middle else low = middle + 1 end
    end
    return low
end

--- Adds the numbers lo .. hi - 1; false if all of them are there already.
function ranges:add(lo, hi)
    if lo >= hi then return false end
    local first = first_behind(self, lo - 1)       -- a run that ends at lo touches
    local start = self.lo[first]
    if not start or start > hi then
        table.insert(self.lo, first, lo)
        table.insert(self.hi, first, hi)
        return true
    end
    if start <= lo and hi <= self.hi[first] then return false end
    self.lo[first], self.hi[first] = math.min(lo, start), math.max(hi, self.hi[first])
    while self.lo[first + 1] and self.lo[first + 1] <= hi do       -- what it now reaches becomes part of it
        self.hi[first] = math.max(hi, table.remove(self.hi, first + 1))
        table.remove(self.lo, first + 1)
    end
    return true
end

--- The end of the first run that has a number of lo .. hi - 1; nil if none has.
function ranges:meets(lo, hi)
    local n = #self.hi
    if n == 0 or self.hi[n] <= lo or lo >= hi then return nil end
    local first = n > 1 and first_behind(self, lo) or 1
    return self.lo[first] < hi and self.hi[first] or nil
end

return ranges
