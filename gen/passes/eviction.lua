-- eviction: which chunks stay in a memory of limited size while a known list of uses is gone through.
--
--   uses 1 2 3 1 2 3, sizes 1, room for 2      load 1 ; load 2 ; 3 in the place of 2 ; 1 is there ; 2 in that of 1 ; 3
--
-- All uses are known, so the chunk goes whose next use lies farthest: one that is never used again first; of equal ones
-- the larger one, then the one of the lower number. Values do not change between uses, so only loads move bytes. With
-- equal sizes no other rule moves fewer. With different sizes one large chunk may go in the place of several small ones
-- that are used later, or the other way round. So three rules play the list, and the one that moves the fewest bytes is
-- taken, the first of equal ones:
--
--   farthest      as above
--   alone         those that are never used again, then the smallest one that makes the room alone, then the largest
--   recent        the last use lies farthest back: a cache that knows nothing, which is so never better than the plan
local ordered = require "base.ordered"

local eviction = {}

-- The place of a use that never comes.
local NEVER = math.huge

--- Whether chunk a goes before chunk b; next[a], next[b]: the places of their next uses, nil: they have none.
function eviction.before(a, b, next, sizes)
    local of_a, of_b = next[a] or NEVER, next[b] or NEVER
    if of_a ~= of_b then return of_a > of_b end
    if sizes[a] ~= sizes[b] then return sizes[a] > sizes[b] end
    return a < b
end

-- Each rule: whether chunk a goes before chunk b. now: { next, last, sizes, missing = the room that is to be made }.
local RULES = {}

function RULES.farthest(a, b, now) return eviction.before(a, b, now.next, now.sizes) end

function RULES.alone(a, b, now)
    local done_a, done_b = now.next[a] == nil, now.next[b] == nil
    if done_a ~= done_b then return done_a end
    local size_a, size_b = now.sizes[a], now.sizes[b]
    local enough_a, enough_b = size_a >= now.missing, size_b >= now.missing
    if enough_a ~= enough_b then return enough_a end
    if size_a ~= size_b then return enough_a == (size_a < size_b) end
    return eviction.before(a, b, now.next, now.sizes)
end

function RULES.recent(a, b, now)
    if now.last[a] ~= now.last[b] then return now.last[a] < now.last[b] end
    return a < b
end

-- next[i][chunk]: the place of the first use of a chunk behind use i.
local function next_uses(uses)
    local list, next = {}, {}
    for i = #uses, 1, -1 do
        list[i] = next
        next = ordered.copy(next, { [uses[i]] = i })
    end
    return list
end

-- The chunk that goes first of those that are there, without `kept`; list: their numbers.
local function first_of(list, kept, before, now)
    local first
    for k, chunk in ipairs(list) do
        if chunk ~= kept and (not first or before(chunk, list[first], now)) then first = k end
    end
    return table.remove(list, first)
end

-- Plays the list by a rule: the bytes that are loaded, and the steps.
local function play(uses, sizes, room, before, may_pass)
    local there, list, used, bytes, last, steps, next = {}, {}, 0, 0, {}, {}, next_uses(uses)
    for i, chunk in ipairs(uses) do
        local step = { load = not there[chunk], gone = {} }
        last[chunk], steps[i] = i, step
        if step.load then
            bytes = bytes + sizes[chunk]
            step.passes = may_pass and sizes[chunk] > room or nil
        end
        if step.load and not step.passes then
            there[chunk], list[#list + 1], used = true, chunk, used + sizes[chunk]
        end
        while used > room do
            local gone = first_of(list, not may_pass and chunk, before,
                { next = next[i], last = last, sizes = sizes, missing = used - room })
            there[gone], used = nil, used - sizes[gone]
            if gone == chunk then step.passes = true else table.insert(step.gone, gone) end
        end
    end
    return bytes, steps
end

--- The plan for `uses`, an array of numbers of chunks, with sizes[chunk] each and `room` for so much at once, at least
--- for the largest. Returns its steps, one for each use, { load = whether it is loaded there, gone = the chunks that go
--- before that }, and the bytes that are loaded. may_pass: a chunk that is loaded need not stay; it then `passes`, and
--- none has to fit.
function eviction.plan(uses, sizes, room, may_pass)
    local steps, least
    for _, rule in ipairs { "farthest", "alone", "recent" } do
        local bytes, played = play(uses, sizes, room, RULES[rule], may_pass)
        if not least or bytes < least then steps, least = played, bytes end
    end
    return steps, least or 0
end

return eviction
