-- curve_svg: curves as SVG: paths in a frame with axes. A curve that is longer than the picture is wide is the mean of
-- each part, in a band from its least to its greatest value.
local axis = require "report.axis"
local html = require "report.html"
local ordered = require "base.ordered"
local series = require "report.series"
local template = require "base.template"
local text = require "base.text"

local curve_svg = {}

local WIDTH, HEIGHT = 960, 440
local LEFT, RIGHT, TOP, BOTTOM = 96, 930, 14, 396

-- Parts of a curve, by the number of curves: the page stays small.
local PARTS = { 240, 160, 100 }

-- Evaluations with a dot each, at most.
local MOST_DOTS = 60

local COLOURS = 6

--- The curves of a figure: { label, colour, run, bins, summary, evaluation } of each run that has it; for "loss" those
--- of evaluations too. runs: in the order of their colours.
function curve_svg.curves(runs, name)
    local list, parts = {}, PARTS[math.min(#runs, #PARTS)]
    local function add(run, i, figure)
        local points = series.points(run, figure)
        if #points.values == 0 then return end
        list[#list + 1] = { label = run.label, colour = (i - 1) % COLOURS + 1, run = run,
            summary = series.summary(points),
            bins = series.thinned(points, parts), evaluation = figure:find "^eval%." ~= nil }
    end
    for i, run in ipairs(runs) do add(run, i, name) end
    if name == "loss" then
        for i, run in ipairs(runs) do add(run, i, "eval.loss") end
    end
    return list
end

--- Whether all values of the curves are above 0, and some are.
function curve_svg.has_log(curves)
    local some = false
    for _, curve in ipairs(curves) do
        if curve.summary.least and curve.summary.least <= 0 then return false end
        some = some or curve.summary.least ~= nil
    end
    return some
end

local function x_of(point, by) return by == "rows" and point.rows or point.cycle end

-- Both axes, or nil where no value is finite.
local function axes_of(curves, how)
    local x_low, x_high, y_low, y_high
    for _, curve in ipairs(curves) do
        for _, bin in ipairs(curve.bins) do
            local x = x_of(bin, how.by)
            x_low, x_high = math.min(x_low or x, x), math.max(x_high or x, x)
            if bin.least then
                y_low, y_high = math.min(y_low or bin.least, bin.least), math.max(y_high or bin.most, bin.most)
            end
        end
    end
    if not y_low then return nil end
    return axis.new(x_low, x_high, 6, "linear"), axis.new(y_low, y_high, 6, how.scale)
end

-- The points of a path, whole units: the first one absolute, each other one by its distance.
local function path_of(points)
    local out, x, y = {}, 0, 0
    for i, p in ipairs(points) do
        if p[1] ~= x or p[2] ~= y or i == 1 then
            out[#out + 1] = (i == 1 and "M%d %d" or #out == 1 and "l%d %d" or " %d %d"):format(
                i == 1 and p[1] or p[1] - x, i == 1 and p[2] or p[2] - y)
            x, y = p[1], p[2]
        end
    end
    if #out == 1 then out[2] = "h0" end         -- a round end makes it a dot
    return (table.concat(out):gsub(" %-", "-"))
end

-- The bins of a curve in stretches without gaps, as { x, y of mean, least and most }.
local function stretches(curve, how, place)
    local list, open = {}, nil
    for _, bin in ipairs(curve.bins) do
        if bin.least then
            if not open then
                open = {}
                list[#list + 1] = open
            end
            local x = x_of(bin, how.by)
            open[#open + 1] = { place.x(x), place.y(bin.mean), place.y(bin.least), place.y(bin.most) }
        else
            open = nil
        end
    end
    return list
end

-- The band of a stretch: along the greatest values, and back along the least.
local function band_of(stretch)
    local points = {}
    for _, p in ipairs(stretch) do points[#points + 1] = { p[1], p[4] } end
    for i = #stretch, 1, -1 do points[#points + 1] = { stretch[i][1], stretch[i][3] } end
    return path_of(points) .. "z"
end

local MARKS = {
    { "skips", "skipped", "M%d " .. BOTTOM .. "v-16", "update %d was skipped" },
    { "resumes", "resumed", "M%d " .. TOP .. "V" .. BOTTOM, "resumed behind update %d" },
    { "checkpoints", "saved", "M%d " .. BOTTOM .. "l-6 11h12z", "checkpoint of update %d" },
}

-- Marks of a run on the axis of updates, at most one of a kind at each place; those of values that are not finite too.
local function marks_of(curve, how, place)
    local list = {}
    local function add(kind, path, sentence, cycle, x)
        local last = list[#list]
        if last and last.kind.text == kind and last.x == x or x < LEFT or x > RIGHT then return end
        list[#list + 1] = { kind = text.block(kind), x = x, path = text.block(path:format(x)),
            text = html.text(curve.label .. ": " .. sentence:format(cycle)) }
    end
    for _, bin in ipairs(curve.bins) do
        if bin.bad > 0 then
            add("bad", "M%d " .. BOTTOM .. "v-24", "not finite around update %d", bin.cycle, place.x(x_of(bin, how.by)))
        end
    end
    if curve.evaluation or how.by == "rows" or how.no_marks then return list end
    for _, mark in ipairs(MARKS) do
        for _, event in ipairs(curve.run[mark[1]]) do
            add(mark[2], mark[3], mark[4], event.cycle, place.x(event.cycle))
        end
    end
    return list
end

-- A curve for the template.
local function drawn(curve, how, place)
    local lines, bands, dots, wide = {}, {}, {}, false
    local list = stretches(curve, how, place)
    for i, stretch in ipairs(list) do
        lines[i], bands[i] = path_of(stretch), band_of(stretch)
        for _, p in ipairs(stretch) do
            wide = wide or p[3] ~= p[4]
            if curve.evaluation and #curve.bins <= MOST_DOTS then
                dots[#dots + 1] = ("M%d %da5 5 0 1 0 10 0a5 5 0 1 0-10 0"):format(p[1] - 5, p[2])
            end
        end
    end
    return { label = html.text(curve.label .. (curve.evaluation and ", evaluation" or "")), colour = curve.colour,
        kind = text.block(curve.evaluation and " evaluation" or ""), line = text.block(table.concat(lines)),
        band = wide and text.block(table.concat(bands)), dots = #dots > 0 and text.block(table.concat(dots)),
        marks = marks_of(curve, how, place) }
end

--- A figure for the template, or nil where no value can be drawn. how: { by = "update" or "rows", scale = "linear" or
--- "log", no_marks = leave events of the runs out }.
function curve_svg.figure(curves, how)
    local x, y = axes_of(curves, how)
    if not y then return nil end
    local place = {}
    function place.x(value) return math.floor(LEFT + x.at(value) * (RIGHT - LEFT) + 0.5) end
    function place.y(value) return math.floor(BOTTOM - y.at(value) * (BOTTOM - TOP) + 0.5) end
    local function ticks(one, at)
        return ordered.collect(one.ticks, function(tick)
            return { at = at(tick), text = html.text(axis.label(tick)) }
        end)
    end
    local columns, rows = ticks(x, place.x), ticks(y, place.y)
    local function each(list, format)
        local out = ordered.collect(list, function(tick) return format:format(tick.at) end)
        return text.block(table.concat(out))
    end
    return { width = WIDTH, height = HEIGHT, left = LEFT, right = RIGHT, top = TOP, bottom = BOTTOM, columns = columns,
        rows = rows, lines = each(rows, "M" .. LEFT .. " %dH" .. RIGHT),
        strokes = each(columns, "M%d " .. BOTTOM .. "v8"),
        curves = ordered.collect(curves, function(curve) return drawn(curve, how, place) end) }
end

--- A figure with its title and legend as a file of its own. legend: { colour, evaluation, text } of each line.
function curve_svg.alone(figure, title, legend)
    figure.title, figure.legend = html.text(title), {}
    for i, line in ipairs(legend) do
        figure.legend[i] = { colour = line.colour, text = html.text(line.text), y = HEIGHT + 48 + 34 * i,
            kind = text.block(line.evaluation and " evaluation" or "") }
    end
    figure.whole_height = HEIGHT + 66 + 34 * #legend
    return template.embedded "templates/report/curves.svg"("alone", { f = figure }).text
end

return curve_svg
