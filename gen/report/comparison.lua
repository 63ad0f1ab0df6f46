-- comparison: two runs beside each other: their specs, losses and evaluations at equal rows, speed and memory.
local lines = require "base.lines"
local ordered = require "base.ordered"

local comparison = {}

--- |a - b| over the larger of both; 0 for equal ones and for two that are no numbers, else infinite where one is none.
function comparison.difference(a, b)
    if a == b or a ~= a and b ~= b then return 0 end
    local gap = math.abs(a - b)
    if gap - gap ~= 0 then return math.huge end
    return gap / math.max(math.abs(a), math.abs(b))
end

-- The mean loss of the updates first..last by their weights; one alone as it is.
local function mean_loss(run, first, last)
    local loss, weights = run.columns.loss, run.columns.weight or run.columns.rows
    if first == last then return loss[first] end
    local sum, total = 0, 0
    for i = first, last do
        if not loss[i] then return false end
        local weight = weights and weights[i] or 1
        sum, total = sum + loss[i] * weight, total + weight
    end
    return sum / total
end

-- Calls see(rows, a, b, cycle of a, cycle of b) for the losses of both runs between one count of rows that both reach
-- and the next.
local function each_loss(a, b, see)
    if not a.columns.loss or not b.columns.loss then return end
    local i, j, from_i, from_j = 1, 1, 1, 1
    while i <= #a.rows and j <= #b.rows do
        if a.rows[i] == b.rows[j] then
            local x, y = mean_loss(a, from_i, i), mean_loss(b, from_j, j)
            if x and y then see(a.rows[i], x, y, a.cycles[i], b.cycles[j]) end
            i, j, from_i, from_j = i + 1, j + 1, i + 1, j + 1
        elseif a.rows[i] < b.rows[j] then
            i = i + 1
        else
            j = j + 1
        end
    end
end

-- The same for a metric of evaluations.
local function each_eval(a, b, metric, see)
    local by_rows = {}
    for _, event in ipairs(b.evals) do by_rows[event.rows] = event end
    for _, event in ipairs(a.evals) do
        local other = by_rows[event.rows]
        if other and event.values[metric] and other.values[metric] then
            see(event.rows, event.values[metric], other.values[metric], event.cycle, other.cycle)
        end
    end
end

-- Compares the pairs that each(see) gives: { name, count, worst, first = the first place above the tolerance }, each
-- place { rows, a, b, cycle_a, cycle_b, difference }.
local function measured(name, tolerance, each)
    local found = { name = name, count = 0 }
    each(function(rows, a, b, cycle_a, cycle_b)
        local place = { rows = rows, a = a, b = b, cycle_a = cycle_a, cycle_b = cycle_b,
            difference = comparison.difference(a, b) }
        found.count = found.count + 1
        if not found.worst or place.difference > found.worst.difference then found.worst = place end
        if not found.first and place.difference > tolerance then found.first = place end
    end)
    return found
end

-- Metrics that evaluations of both runs have.
local function common_metrics(a, b)
    local names, both = {}, {}
    for _, event in ipairs(a.evals) do
        for name in ordered.each(event.values) do names[name] = true end
    end
    for _, event in ipairs(b.evals) do
        for name in ordered.each(event.values) do both[name] = names[name] end
    end
    return ordered.keys(both)
end

--- The median of the finite numbers of a column, or nil.
function comparison.median(column)
    local list = ordered.collect(column or {}, function(value) return value and value - value == 0 and value or nil end)
    if #list == 0 then return nil end
    table.sort(list)
    return (list[(#list + 1) // 2] + list[#list // 2 + 1]) / 2
end

-- The speed of both runs in tokens, else in rows.
local function speeds(a, b)
    for _, name in ipairs { "tokens_per_s", "rows_per_s" } do
        local x, y = comparison.median(a.columns[name]), comparison.median(b.columns[name])
        if x and y then return { unit = name == "rows_per_s" and "rows/s" or "tokens/s", a = x, b = y } end
    end
end

--- The changed lines of two texts of specs, "- line" and "+ line".
function comparison.spec_changes(a, b)
    return ordered.collect(lines.edits(lines.split(a), lines.split(b)), function(edit)
        return edit.sign ~= " " and edit.sign .. " " .. edit.text or nil
    end)
end

--- Settings of run.json that differ: { name, a, b } as texts.
function comparison.setting_changes(a, b)
    local names = {}
    for _, settings in ipairs { a, b } do
        for name in ordered.each(settings) do names[name] = true end
    end
    return ordered.collect(ordered.keys(names), function(name)
        local x, y = tostring(a[name] or "default"), tostring(b[name] or "default")
        return x ~= y and { name = name, a = x, b = y } or nil
    end)
end

--- The figures of two runs (log.read) beside each other: { loss, evaluations = list, largest, speed, planned, used,
--- parameters }: the first two as `measured` has them; the others { a, b } where both runs have them.
function comparison.of(a, b, tolerance)
    local found = { evaluations = {}, largest = 0 }
    found.loss = measured("loss", tolerance, function(see) each_loss(a, b, see) end)
    for i, metric in ipairs(common_metrics(a, b)) do
        found.evaluations[i] = measured(metric, tolerance, function(see) each_eval(a, b, metric, see) end)
    end
    local count = 0
    for _, one in ipairs { found.loss, table.unpack(found.evaluations) } do
        count = count + one.count
        if one.worst then found.largest = math.max(found.largest, one.worst.difference) end
    end
    if count == 0 then found.largest = nil end
    local function both(x, y) return math.type(x) and math.type(y) and { a = x, b = y } or nil end
    local x, y = a.finish or {}, b.finish or {}
    found.speed, found.planned = speeds(a, b), both(a.start.planned_bytes, b.start.planned_bytes)
    found.used = both(x.peak_rss_bytes, y.peak_rss_bytes)
    found.parameters = both(a.start.parameters, b.start.parameters)
    return found
end

return comparison
