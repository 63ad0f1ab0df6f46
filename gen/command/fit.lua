-- fit: what a spec leaves to its memory budget: rows of a micro-step ("auto" of batch) and what is computed
-- again ("auto" of memory). Every candidate goes through all passes; of those whose plan fits, the one
-- that is predicted to be the fastest is taken.
--
--   budget 2 GiB, global = 64      64 rows, all kept             3.4 GiB
--                                  32 rows, all kept             1.8 GiB   <- fits, and is the fastest
--                                  64 rows, light values again   2.3 GiB
local diag = require "base.diag"
local program = require "emit.program"
local text = require "base.text"

local DEPTHS = { "none", "light", "blocks" }

local AGAIN = { none = "all values kept", light = "light values computed again",
    blocks = "values inside blocks computed again" }

-- Microseconds that a call costs whatever it computes: the threads meet before and after it.
local CALL = 2

-- Bytes that the budget is about, and predicted microseconds of an update.
local function measure(g, c)
    local facts = program.plan(g, c)
    local bytes, time = 0, 0
    for _, arena in ipairs(facts.arenas) do
        if c.target ~= "cuda" or arena.memory == "device" then bytes = bytes + arena.bytes end
    end
    for _, kernel in ipairs(facts.kernels) do time = time + kernel.calls * (kernel.predicted_us + CALL) end
    return bytes, time
end

local function plural(n, noun) return ("%d %s%s"):format(n, noun, n == 1 and "" or "s") end

-- kept: the candidate that a budget without end would have given.
local function told(c, candidate, kept)
    local line = ("memory: %s per micro-step, %s, %s: %s of %s"):format(plural(c.batch, "row"),
        plural(c.accumulate, "micro-step"), AGAIN[candidate.depth], text.bytes(candidate.bytes),
        text.bytes(c.budget))
    if candidate.bytes == kept.bytes then return line end
    return ("%s; predicted %.1f %% slower than %s with %s, which would be %s"):format(line,
        100 * (candidate.time / kept.time - 1), plural(kept.rows, "row"), AGAIN.none, text.bytes(kept.bytes))
end

-- The greatest number of rows (rows[1] is the most) whose plan fits at this depth: a candidate or nil.
local function largest_fitting(try, rows, depth, budget)
    local fits, low, high = nil, 1, #rows
    while low <= high do
        local middle = (low + high) // 2
        local candidate = try(rows[middle], depth)
        if candidate.bytes <= budget then
            fits, high = candidate, middle - 1
        else
            low = middle + 1
        end
    end
    return fits
end

-- The smallest plan of all. Fewer rows do not always make it smaller: each micro-batch that is read ahead
-- ends on a line of the cache.
local function smallest_of(try, rows, depths)
    local smallest
    for _, depth in ipairs(depths) do
        for _, n in ipairs(rows) do
            local candidate = try(n, depth)
            if not smallest or candidate.bytes < smallest.bytes then smallest = candidate end
        end
    end
    return smallest
end

local function refuse(c, smallest)
    diag.fail(diag.field(c.memory_at, "budget"), ("memory: budget is %s, the smallest plan has %s (%s per "
        .. "micro-step%s)"):format(text.bytes(c.budget), text.bytes(smallest.bytes), plural(smallest.rows, "row"),
        c.recompute_open and ", " .. AGAIN[smallest.depth] or ""),
        { notes = { ("expected %dB or more%s%s"):format(smallest.bytes, c.rows_open and ""
            or (', or batch { "auto", global = %d }'):format(c.batch * c.ranks * c.accumulate),
            c.recompute_open and "" or ', or recompute = "auto"') } })
end

--- make(choice) -> graph, configuration of a spec as config.read's `choice` decides what is open. Returns
--- them for the best choice; what was chosen is told on standard error.
return function(make)
    local g, c = make {}
    if not c.budget then return g, c end
    local function made(candidate, trial)
        return diag.without_warnings(make, { rows = candidate.rows, trial = trial,
            depth = candidate.depth ~= "none" and candidate.depth or nil })
    end
    local function try(rows, depth)
        local candidate = { rows = rows, depth = depth }
        local graph, config = made(candidate, true)
        candidate.bytes, candidate.time = measure(graph, config)
        return candidate
    end
    local rows, depths = c.rows_open or { c.batch }, c.recompute_open and DEPTHS or { "none" }
    local kept, best = try(rows[1], "none"), nil
    for _, depth in ipairs(depths) do
        local candidate = largest_fitting(try, rows, depth, c.budget)
        if candidate and (not best or candidate.time < best.time) then best = candidate end
    end
    best = best or smallest_of(try, rows, depths)
    if best.bytes > c.budget then refuse(c, best) end
    g, c = made(best)
    if c.rows_open or c.recompute_open then io.stderr:write(told(c, best, kept), "\n") end
    return g, c
end
