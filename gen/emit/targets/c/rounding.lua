-- rounding: what is known of a result that a kernel rounds to bf16 when it stores it.
--
--   add_out = rounded(x_1 + rounded(value))             add_out = x_1 + rounded(value)
--   add_out < 0 ? 0 : add_out                    ->     add_out < 0 ? 0 : add_out           stored rounded, in rows
--   x_2 <= 0 ? 0 : x_1                                  the same                            stored as it is
local ordered = require "base.ordered"

local rounding = {}

-- Operations that may give one of their operands, or its sign turned.
local PASSES_ON = { neg = true, abs = true, max = true, min = true, where = true, recurrence = true, rounded = true }

-- Whether all values that e may pass on are of a kind: those of a name as `known` says, others as is_one says.
local function all_passed_on(e, known, is_one)
    if e.op == "var" then return known[e.name] or false end
    local one = is_one(e)
    if one ~= nil then return one end
    for i = e.op == "where" and 2 or 1, #e do
        if not all_passed_on(e[i], known, is_one) then return false end
    end
    return true
end

-- The names of `known` and of the statements whose values are of that kind, and whether the result's is.
local function of_kind(list, known, is_one)
    known = ordered.copy(known)
    for _, s in ipairs(list) do known[s[1]] = all_passed_on(s[2], known, is_one) end
    return known[list[#list][1]], known
end

local LEAST = 2.0 ^ -126        -- smaller numbers are denormal

local function is_computed(e)
    if e.op == "num" then return e.value == 0 or math.abs(e.value) >= LEAST end
    if not PASSES_ON[e.op] then return true end
end

--- Whether the result of a list of statements is never denormal: threads make what they compute 0 then. computed: the
--- inputs, as keys, of which the same is true.
function rounding.is_computed(list, computed) return (of_kind(list, computed, is_computed)) end

-- Whether x is a number of bf16.
local function is_bf16(x)
    local bits = ("<f"):pack(x)
    return bits:sub(1, 2) == "\0\0" and ("<f"):unpack(bits) == x
end

local function is_exact(e)
    if e.op == "num" then return is_bf16(e.value) end
    if e.op == "rounded" then return true end
    if not PASSES_ON[e.op] or e.op == "recurrence" then return false end
end

--- Whether the result of a list of statements is a number of bf16 before it is rounded. exact: the inputs that are, as
--- keys.
function rounding.is_exact(list, exact) return (of_kind(list, exact, is_exact)) end

local COMPARES = { lt = true, le = true, gt = true, ge = true }

-- The position in e of what it compares with 0, nil: it does not.
local function compared(e)
    if not COMPARES[e.op] then return nil end
    for i = 1, 2 do
        if e[3 - i].op == "num" and e[3 - i].value == 0 then return i end
    end
end

-- Calls fn(e, i, free) for each part i of e; free: rounding the part makes no difference, as e compares it with 0, or
-- passes it on and is free itself.
local function each_part(e, is_free, fn)
    local sign = compared(e)
    for i = 1, #e do
        fn(e[i], i, i == sign or is_free and e.op == "where" and i > 1)
    end
end

-- Notes the names that e reads where rounding makes a difference.
local function note(e, is_free, needed)
    if e.op == "var" and not is_free then needed[e.name] = true end
    each_part(e, is_free, function(part, _, free) note(part, free, needed) end)
end

-- e without roundings of computed numbers that make no difference.
local function without(e, is_free, computed)
    if is_free and e.op == "rounded" and all_passed_on(e[1], computed, is_computed) then
        return without(e[1], false, computed)
    end
    if #e == 0 then return e end
    local node = ordered.copy(e)
    each_part(e, is_free, function(part, i, free) node[i] = without(part, free, computed) end)
    return setmetatable(node, getmetatable(e))
end

--- The list without the roundings that make no difference, as its result is rounded. A number that is never denormal
--- keeps its sign, and is 0 or not, when it is rounded to bf16.
function rounding.late(list, computed)
    local _, known = of_kind(list, computed, is_computed)
    local out, needed = table.move(list, 1, #list, 1, {}), {}
    for i = #list, 1, -1 do
        local name, e = list[i][1], list[i][2]
        local is_free = i == #list or not needed[name]
        out[i] = { name, without(e, is_free, known) }
        note(out[i][2], is_free, needed)
    end
    return out
end

return rounding
