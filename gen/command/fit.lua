-- fit: chooses what a spec leaves to its memory budget: the rows of a micro-step (batch.rows = "auto"), the values
-- that are computed again (memory.recompute) and whether logits are whole (memory.logits). Each candidate goes through
-- all passes; of those that fit the budget, the one with the shortest predicted time is taken.
--
--   budget 2 GiB, global = 64      64 rows, all kept             3.4 GiB
--                                  32 rows, all kept             1.8 GiB   <- fits, and is the fastest
--                                  64 rows, light values again   2.3 GiB
local diag = require "base.diag"
local plan = require "emit.program.plan"
local program = require "emit.program.program"
local targets = require "emit.targets.targets"
local text = require "base.text"

local DEPTHS, LOGITS = { "none", "light", "blocks" }, { "whole", "chunked" }

local AGAIN = { none = "all values kept", light = "light values computed again",
    blocks = "values inside blocks computed again" }

-- Microseconds that every kernel call of the processor costs for the barriers of its threads.
local CALL = 2

-- The bytes that the budget limits, and the predicted microseconds and operations of an update.
local function measure(g, c)
    local facts = program.plan(g, c)
    local bytes = targets.of(c).device and plan.device_bytes(facts.arenas) or facts.totals.bytes
    local time = facts.placement and facts.placement.predicted_us or 0
    local call = facts.device and facts.device.call_us or CALL
    for _, kernel in ipairs(facts.kernels) do time = time + kernel.calls * (kernel.predicted_us + call) end
    return bytes, time, facts.totals.flops_per_cycle
end

local function plural(n, noun) return ("%d %s%s"):format(n, noun, n == 1 and "" or "s") end

-- ", logits whole" or ", logits chunked" if the budget decides that, else "".
local function of_logits(c, logits)
    if not c.logits_open then return "" end
    return logits == "whole" and ", logits whole" or (", logits of %d rows at a time"):format(c.logits_rows)
end

-- Prints the choice; kept: the candidate that an unlimited budget gives.
local function told(c, candidate, kept)
    local line = ("memory: %s per micro-step, %s, %s%s: %s of %s"):format(plural(c.batch, "row"),
        plural(c.accumulate, "micro-step"), AGAIN[candidate.depth], of_logits(c, candidate.logits),
        text.bytes(candidate.bytes), text.bytes(c.budget))
    if candidate.bytes == kept.bytes then return line end
    return ("%s; %.1f %% more arithmetic and predicted %.1f %% slower than %s with %s%s, which would be %s"):format(
        line, 100 * (candidate.flops / kept.flops - 1), 100 * (candidate.time / kept.time - 1),
        plural(kept.rows, "row"), AGAIN.none, of_logits(c, "whole"), text.bytes(kept.bytes))
end

-- The candidate with the most rows (rows is descending) whose plan fits with this depth and logits, or nil. Fewer rows
-- may need more memory: those of few rows read transposed copies of weights.
local function largest_fitting(try, rows, depth, logits, budget)
    for _, n in ipairs(rows) do
        local candidate = try(n, depth, logits)
        if candidate.bytes <= budget then return candidate end
    end
end

-- The smallest plan. Fewer rows may need more memory, because each prefetched micro-batch is padded to a cache line.
local function smallest_of(try, rows, ways)
    local smallest
    for _, way in ipairs(ways) do
        for _, n in ipairs(rows) do
            local candidate = try(n, way.depth, way.logits)
            if not smallest or candidate.bytes < smallest.bytes then smallest = candidate end
        end
    end
    return smallest
end

-- The ways to trade time for memory, { depth, logits }, from the fastest to the slowest.
local function ways_of(c)
    local list = {}
    for _, depth in ipairs(c.recompute_open and DEPTHS or { "none" }) do
        for _, logits in ipairs(c.logits_open and LOGITS or { "whole" }) do
            list[#list + 1] = { depth = depth, logits = logits }
        end
    end
    return list
end

local function refuse(c, smallest)
    diag.fail(diag.field(c.memory_at, "budget"), ("memory: budget is %s, the smallest plan has %s (%s per "
        .. "micro-step%s%s)"):format(text.bytes(c.budget), text.bytes(smallest.bytes), plural(smallest.rows, "row"),
        c.recompute_open and ", " .. AGAIN[smallest.depth] or "", of_logits(c, smallest.logits)),
        { notes = { ("expected %dB or more%s%s%s"):format(smallest.bytes, c.rows_open and ""
            or (', or batch { "auto", global = %d }'):format(c.batch * c.ranks * c.accumulate),
            c.recompute_open and "" or ', or recompute = "auto"',
            not c.logits_open and c.logits_possible and ', or logits = "auto"' or "") } })
end

--- Returns the graph and the configuration of the best choice, and prints the choice on standard error.
--- make(choice) -> graph, configuration, with the `choice` of config.read.
return function(make)
    local g, c = make {}
    if not c.budget then return g, c end
    local function made(candidate, trial)
        return diag.without_warnings(make, { rows = candidate.rows, trial = trial, logits = candidate.logits,
            depth = candidate.depth ~= "none" and candidate.depth or nil })
    end
    local function try(rows, depth, logits)
        local candidate = { rows = rows, depth = depth, logits = logits }
        local graph, config = made(candidate, true)
        candidate.bytes, candidate.time, candidate.flops = measure(graph, config)
        return candidate
    end
    local rows, ways = c.rows_open or { c.batch }, ways_of(c)
    local kept, best = try(rows[1], "none", "whole"), nil
    for _, way in ipairs(ways) do
        local candidate = largest_fitting(try, rows, way.depth, way.logits, c.budget)
        if candidate and (not best or candidate.time < best.time) then best = candidate end
    end
    best = best or smallest_of(try, rows, ways)
    if best.bytes > c.budget then refuse(c, best) end
    g, c = made(best)
    if c.rows_open or c.recompute_open or c.logits_open then io.stderr:write(told(c, best, kept), "\n") end
    return g, c
end
