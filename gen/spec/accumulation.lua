-- accumulation: the number of micro-steps of each cycle, and the policy for rows that do not fill a whole
-- cycle. Counts are per rank; all ranks have the same.
--
--   N = 10 micro-batches, A = 4     drop   4 4 | 4 4          2 batches of each epoch are left out
--                                   flush  4 4 2 | 4 4 2
--                                   carry  4 4 (2 2) 4 4      a cycle may span two epochs
--
-- runtime/data/loader.c serves the same cycles; tests/lua/test_tails.lua compares the two.
local check = require "base.check"
local diag = require "base.diag"
local ordered = require "base.ordered"

local accumulation = {}

local COUNT = { name = "later", type = "int", min = 1, max = 65536 }

-- accumulate.later = { [cycle] = A } as a list of { from = cycle, a = A }, which begins with cycle 0.
local function table_of(count, later, context)
    local list = { { from = 0, a = count } }
    for cycle, a in ordered.each(later or {}) do
        if not math.type(cycle) or not math.tointeger(cycle) or cycle < 1 then
            diag.fail(context.locate("later"), ("accumulate: later has the key %s, expected the number of a "
                .. "cycle, from 1: later = { [1000] = 8 }"):format(tostring(cycle)), {})
        end
        a = check.value(COUNT, a, context)
        if a ~= list[#list].a then list[#list + 1] = { from = math.tointeger(cycle), a = a } end
    end
    return list
end

local function set_table(c, list)
    c.table, c.accumulate, c.largest = list, list[1].a, 1
    for _, entry in ipairs(list) do c.largest = math.max(c.largest, entry.a) end
end

-- The possible rows per micro-step for `global` rows per update on `ranks` ranks, descending: the divisors of a
-- rank's rows; none if `ranks` does not divide `global`.
local function divisors(global, ranks)
    local list, of_rank = {}, global // ranks
    for rows = of_rank, 1, -1 do
        if global % ranks == 0 and of_rank % rows == 0 then list[#list + 1] = rows end
    end
    return list
end

--- Sets c.table, c.accumulate (its first count), c.largest, c.unroll, c.tail, c.drain, c.global from the
--- fields of the words batch and accumulate. With batch.rows = "auto", c.rows_open lists the possible rows on
--- `ranks` ranks and c.batch is `rows`, or the largest of them.
function accumulation.read(c, batch, batch_at, acc, context, rows, ranks)
    c.batch, c.batch_at, c.unroll, c.tail, c.drain = batch.rows, batch_at, acc.unroll, acc.tail, acc.drain
    c.global = batch.global
    if batch.global and (acc.count or acc.later) then
        diag.fail(context.locate(acc.later and "later"),
            "accumulate: batch.global gives it, expected one of the two", {})
    end
    if batch.rows == "auto" then
        if not batch.global then
            diag.fail(batch_at, "batch: rows is \"auto\", expected global = rows per update beside it", {})
        end
        c.rows_open = divisors(batch.global, ranks)
        c.batch = rows or c.rows_open[1] or batch.global
    end
    if not c.global then set_table(c, table_of(acc.count or 1, acc.later, context)) end
end

-- "4 rows x 2 ranks": of a micro-step of all ranks.
local function rows_of(c, ranks) return ("%d rows x %d rank%s"):format(c.batch, ranks, ranks == 1 and "" or "s") end

--- With batch.global: sets the micro-steps per cycle on c.ranks ranks, or returns a complaint.
function accumulation.divide(c)
    if not c.global then return nil end
    local per_step = c.batch * c.ranks
    if c.global % per_step ~= 0 then
        return ("global is %d, which %s = %d does not divide"):format(c.global, rows_of(c, c.ranks), per_step)
    end
    set_table(c, { { from = 0, a = c.global // per_step } })
end

--- The micro-steps of cycle number `cycle`, counted from 0, if it is full.
function accumulation.size(c, cycle)
    local a
    for _, entry in ipairs(c.table) do
        if entry.from <= cycle then a = entry.a end
    end
    return a
end

--- The micro-batches of one epoch on each of `ranks` ranks; for a stream, with the present length of its files.
function accumulation.batches(c, ranks)
    local rows, per_step = c.data.train_rows, c.batch * ranks
    if c.data.last == "pad" then return (rows + per_step - 1) // per_step end
    return rows // per_step
end

-- The full cycles in `batches` micro-batches, beginning with cycle number `first`, and the batches left over.
local function cycles_of(c, first, batches)
    local done = 0
    while true do
        local last = first + done >= c.table[#c.table].from
        local a = accumulation.size(c, first + done)
        if batches < a then break end
        local n = last and batches // a or 1
        done, batches = done + n, batches - n * a
    end
    return done, batches
end

--- The cycles of an epoch that begins with cycle `first`, and the micro-batches after its last full cycle. Not for
--- tail "carry".
function accumulation.epoch(c, ranks, first)
    local full, rest = cycles_of(c, first, accumulation.batches(c, ranks))
    if c.tail == "flush" and rest > 0 then return full + 1, rest end
    return full, rest
end

--- The cycles of `epochs` epochs, a number above 0; a fraction of an epoch counts that fraction of its cycles.
function accumulation.cycles(c, ranks, epochs)
    if c.tail == "carry" then
        local n = cycles_of(c, 0, math.floor(epochs * accumulation.batches(c, ranks)))
        return n
    end
    local total, whole = 0, math.floor(epochs)
    local settled = c.table[#c.table].from      -- from this cycle on all epochs have the same length
    local epoch = 0
    while epoch < whole do
        local n = accumulation.epoch(c, ranks, total)
        if n == 0 then return 0 end
        if total >= settled then return total + math.floor((epochs - epoch) * n) end
        total, epoch = total + n, epoch + 1
    end
    return total + math.floor((epochs - whole) * accumulation.epoch(c, ranks, total))
end

--- A complaint if an epoch never fills a cycle, else nil.
function accumulation.complaint(c, ranks)
    local n, rows = accumulation.batches(c, ranks), c.data.train_rows
    if n == 0 then
        return ("an epoch of %d rows has no micro-batch of %s"):format(rows, rows_of(c, ranks))
    end
    if c.tail == "drop" and n < c.largest then
        return ("an epoch of %d rows has %d micro-batches of %s, fewer than the %d of one update: accumulate.tail = "
            .. '"flush" or "carry" would use them'):format(rows, n, rows_of(c, ranks), c.largest)
    end
end

--- The numbers of micro-steps of full cycles, ascending; and, where the last cycle of an epoch may be shorter, the most
--- that it can have, else nil. How many it has depends on the ranks and on the place from which a run goes on.
function accumulation.sizes(c)
    local seen, list = {}, {}
    for _, entry in ipairs(c.table) do
        if not seen[entry.a] then list[#list + 1] = entry.a end
        seen[entry.a] = true
    end
    table.sort(list)
    return list, c.tail == "flush" and c.largest > 1 and c.largest - 1 or nil
end

return accumulation
