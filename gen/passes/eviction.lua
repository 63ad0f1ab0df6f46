-- eviction: which chunks stay in a memory of limited size while a known list of uses is gone through.
--
--   uses 1 2 3 1 2 3, sizes 1, room for 2      load 1 ; load 2 ; 3 in the place of 2 ; 1 is there ; 2 in that of 1 ; 3
--
-- All uses are known, so the chunk goes whose next use lies farthest: one that is never used again first; of equal ones
-- the larger one, then the one of the lower number. Values do not change between uses, so only loads move bytes. With
-- equal sizes no other rule moves fewer; with different ones another may, as one large chunk may stay in the place of
-- several small ones. A cache, from which the chunk goes whose last use lies farthest back, moves no fewer on any of
-- the lists of the tests.
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

-- next[i][chunk]: the place of the first use of a chunk behind use i.
local function next_uses(uses)
    local list, next = {}, {}
    for i = #uses, 1, -1 do
        list[i] = next
        next = ordered.copy(next, { [uses[i]] = i })
    end
    return list
end

-- Takes the chunk that goes first, but not `kept`, from a list of chunks.
local function take_first(list, kept, next, sizes)
    local first
    for k, chunk in ipairs(list) do
        if chunk ~= kept and (not first or eviction.before(chunk, list[first], next, sizes)) then first = k end
    end
    return table.remove(list, first)
end

--- The plan for `uses`, an array of numbers of chunks, with sizes[chunk] each and `room` for so much at once, at least
--- for the largest. Returns its steps, one for each use, { load = whether it is loaded there, gone = the chunks that go
--- before that }, and the bytes that are loaded. may_pass: a chunk that is loaded need not stay; it then `passes`, and
--- none has to fit.
function eviction.plan(uses, sizes, room, may_pass)
    local there, list, used, bytes, steps, next = {}, {}, 0, 0, {}, next_uses(uses)
    for i, chunk in ipairs(uses) do
        local step = { load = not there[chunk], gone = {} }
        steps[i] = step
        if step.load then
            bytes = bytes + sizes[chunk]
            step.passes = may_pass and sizes[chunk] > room or nil
        end
        if step.load and not step.passes then
            there[chunk], list[#list + 1], used = true, chunk, used + sizes[chunk]
        end
        while used > room do
            local gone = take_first(list, not may_pass and chunk, next[i], sizes)
            there[gone], used = nil, used - sizes[gone]
            if gone == chunk then step.passes = true else table.insert(step.gone, gone) end
        end
    end
    return steps, bytes
end

return eviction
