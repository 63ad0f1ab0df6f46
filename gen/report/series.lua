-- series: the curves of a metric of several runs: their points, what a curve is called, and thinned for a picture.
local diag = require "base.diag"
local ordered = require "base.ordered"

local series = {}

--- Figures of updates in the order in which they are shown: { name, title }.
series.figures = {
    { name = "loss", title = "Loss" },
    { name = "lr", title = "Learning rate" },
    { name = "momentum", title = "Momentum" },
    { name = "grad_norm", title = "Norm of the gradient" },
    { name = "scale", title = "Loss scale" },
    { name = "tokens_per_s", title = "Tokens per second" },
    { name = "rows_per_s", title = "Rows per second" },
    { name = "ms", title = "Milliseconds of an update" },
}

local EVALUATION = "^eval%.(.+)$"

-- The metrics of a run's evaluations, sorted.
local function evaluated(run, into)
    for _, event in ipairs(run.evals) do
        for name in ordered.each(event.values) do into[name] = true end
    end
    return into
end

--- Names of the figures that some of the runs have: those of updates, then those of evaluations as "eval.NAME".
function series.names(runs)
    local known, list, metrics = {}, {}, {}
    for _, figure in ipairs(series.figures) do known[figure.name] = true end
    local function add(name)
        for _, run in ipairs(runs) do
            if run.columns[name] then list[#list + 1] = name return end
        end
    end
    for _, figure in ipairs(series.figures) do add(figure.name) end
    local others = {}
    for _, run in ipairs(runs) do
        for name in ordered.each(run.columns) do others[name] = not known[name] or nil end
        evaluated(run, metrics)
    end
    for _, name in ipairs(ordered.keys(others)) do add(name) end
    for _, name in ipairs(ordered.keys(metrics)) do list[#list + 1] = "eval." .. name end
    return list
end

--- The name of a figure as the user gave it: that of an update, else that of an evaluation. Another one is refused.
function series.find(runs, name)
    local names = series.names(runs)
    if #names == 0 then diag.fail("gagen", "no run has an update or an evaluation yet", {}) end
    for _, candidate in ipairs { name, "eval." .. name } do
        if ordered.find(names, candidate) then return candidate end
    end
    local short = ordered.collect(names, function(long) return (long:gsub("^eval%.", "")) end)
    diag.fail("gagen", ("--metric: no run has '%s'"):format(name), { hint = diag.suggest(name, short),
        notes = { "the runs have: " .. table.concat(names, ", ") } })
end

--- The title of a figure.
function series.title(name)
    for _, figure in ipairs(series.figures) do
        if figure.name == name then return figure.title end
    end
    local metric = name:match(EVALUATION)
    return metric and "Evaluation: " .. metric or name
end

-- The points of evaluations: { cycles, rows, values }.
local function points_of_evals(run, metric)
    local found = { cycles = {}, rows = {}, values = {} }
    for _, event in ipairs(run.evals) do
        local value = event.values[metric]
        if value then
            local n = #found.values + 1
            found.cycles[n], found.rows[n], found.values[n] = event.cycle, event.rows, value
        end
    end
    return found
end

-- The points of updates that have the figure.
local function points_of_updates(run, column)
    local whole = #column > 0
    for i = 1, #column do whole = whole and column[i] end
    if whole then return { cycles = run.cycles, rows = run.rows, values = column } end
    local found = { cycles = {}, rows = {}, values = {} }
    for i, value in ipairs(column) do
        if value then
            local n = #found.values + 1
            found.cycles[n], found.rows[n], found.values[n] = run.cycles[i], run.rows[i], value
        end
    end
    return found
end

--- The points of a figure of a run, { cycles, rows, values }, which may be none: values may be nan or inf.
function series.points(run, name)
    local metric = name:match(EVALUATION)
    if metric then return points_of_evals(run, metric) end
    return points_of_updates(run, run.columns[name] or {})
end

--- The figures of the points: { count, bad = how many are not finite, least, most, first, last = finite ones or nil,
--- at_least, at_most, at_first, at_last = their cycles }.
function series.summary(points)
    local found, cycles = { count = #points.values, bad = 0 }, points.cycles
    local least, most, first, last
    for i, value in ipairs(points.values) do
        if value - value ~= 0 then
            found.bad = found.bad + 1
        else
            first, last = first or i, i
            if not least or value < least then least, found.at_least = value, cycles[i] end
            if not most or value > most then most, found.at_most = value, cycles[i] end
        end
    end
    found.least, found.most = least, most
    found.first, found.at_first, found.last, found.at_last = points.values[first], cycles[first], points.values[last],
        cycles[last]
    return found
end

--- The points in at most `count` parts of equal width of their cycles, for a picture that is narrower than the curve
--- is long: { cycle, rows = of the point in the middle, least, mean, most = of the finite values, bad = how many are
--- not }. A part without finite values has no least.
function series.thinned(points, count)
    local values, cycles, n, list = points.values, points.cycles, #points.values, {}
    local first = cycles[1] or 0
    local width = math.max((cycles[n] or 0) - first + 1, 1)
    local at = 1
    while at <= n do
        -- the first cycle behind the part: ceil((part + 1) * width / count) from the first one
        local part = (cycles[at] - first) * count // width
        local behind = n <= count and cycles[at] or first + ((part + 1) * width + count - 1) // count
        local to, sum, good, least, most = at, 0, 0, nil, nil
        while to <= n and (to == at or cycles[to] < behind) do
            local value = values[to]
            if value - value == 0 then
                sum, good = sum + value, good + 1
                if not least or value < least then least = value end
                if not most or value > most then most = value end
            end
            to = to + 1
        end
        local middle = (at + to - 1) // 2
        list[#list + 1] = { cycle = cycles[middle], rows = points.rows[middle], least = least,
            mean = good > 0 and sum / good or nil, most = most, bad = to - at - good }
        at = to
    end
    return list
end

return series
