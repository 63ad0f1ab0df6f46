-- ordered: maps that remember insertion order, and loops over plain tables in sorted order.
-- The order of Lua's `pairs` changes from run to run, so it is used in this file only: output never depends on it.
local ordered = {}

local map = {}
map.__index = map

--- An empty map: `m:set(k, v)`, `m:get(k)`, `m:has(k)`, `m:size()`, and `for k, v in m:each()` in insertion
--- order. A key that is set again keeps its place.
function ordered.map()
    return setmetatable({ keys = {}, values = {} }, map)
end

function map:set(key, value)
    if self.values[key] == nil then
        self.keys[#self.keys + 1] = key
    end
    self.values[key] = value
    return value
end

function map:get(key) return self.values[key] end
function map:has(key) return self.values[key] ~= nil end
function map:size() return #self.keys end

function map:each()
    local i = 0
    return function()
        i = i + 1
        local key = self.keys[i]
        if key ~= nil then
            return key, self.values[key]
        end
    end
end

-- Numbers come before names.
local function before(a, b)
    local a_number, b_number = math.type(a) ~= nil, math.type(b) ~= nil
    if a_number ~= b_number then return a_number end
    return a < b
end

--- The keys of a plain table with string or number keys, sorted: numbers first, then names.
function ordered.keys(t)
    local numbers, names = {}, {}
    for key in pairs(t) do
        local list = math.type(key) and numbers or names
        list[#list + 1] = key
    end
    table.sort(numbers)
    table.sort(names)
    return table.move(names, 1, #names, #numbers + 1, numbers)
end

--- The first of the keys of a plain table, in the order of `ordered.keys`, that `other` has no value for.
function ordered.first_missing(t, other)
    local first
    for key in pairs(t) do
        if other[key] == nil and (first == nil or before(key, first)) then first = key end
    end
    return first
end

--- Iterates over a plain table in the order of `ordered.keys`.
function ordered.each(t)
    local keys, i = ordered.keys(t), 0
    return function()
        i = i + 1
        if keys[i] ~= nil then
            return keys[i], t[keys[i]]
        end
    end
end

--- A shallow copy of a plain table with the fields of `over`, if given, in the place of its own.
function ordered.copy(t, over)
    local out = {}
    for key, value in pairs(t) do out[key] = value end
    for key, value in pairs(over or {}) do out[key] = value end
    return out
end

--- The results f(x, i) for the elements x of an array, without the nil ones.
function ordered.collect(array, f)
    local out = {}
    for i, x in ipairs(array) do
        out[#out + 1] = f(x, i)
    end
    return out
end

--- An array from its end to its beginning.
function ordered.reversed(array)
    local out, n = {}, #array
    for i, x in ipairs(array) do out[n + 1 - i] = x end
    return out
end

--- The position of x in an array, or nil.
function ordered.find(array, x)
    for i, y in ipairs(array) do
        if y == x then return i end
    end
end

return ordered
