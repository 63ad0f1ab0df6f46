-- run_figures: the curves of runs in the report, each by update and by rows, linear and logarithmic, and what is known
-- of the runs as tables.
local axis = require "report.axis"
local curve_svg = require "report.curve_svg"
local html = require "report.html"
local ordered = require "base.ordered"
local parts = require "report.parts"
local series = require "report.series"
local template = require "base.template"
local text = require "base.text"

local run_figures = {}

local BY, SCALES = { "update", "rows" }, { "linear", "log" }

-- The points that were drawn, as rows of a CSV file. Those of updates and of evaluations have a kind where both are.
local function csv_of(curves, numbers)
    local mixed = false
    for _, curve in ipairs(curves) do mixed = mixed or curve.evaluation ~= curves[1].evaluation end
    local rows = { { "run", "update", "rows", "mean", "least", "greatest", "not_finite", mixed and "kind" or nil } }
    for _, curve in ipairs(curves) do
        local kind = mixed and (curve.evaluation and "eval" or "train") or nil
        for _, bin in ipairs(curve.bins) do
            local alone = bin.least == bin.most
            local least, most = not alone and bin.least or "", not alone and bin.most or ""
            rows[#rows + 1] = { numbers[curve.run], bin.cycle, math.tointeger(bin.rows) or bin.rows, bin.mean or "",
                least, most, bin.bad > 0 and bin.bad or "", kind }
        end
    end
    return rows
end

local SUMMARY = { { title = "run" }, { title = "values", number = true }, { title = "first", number = true },
    { title = "last", number = true }, { title = "least", number = true }, { title = "at", number = true },
    { title = "greatest", number = true }, { title = "at", number = true },
    { title = "not finite", number = true } }

local function summary_of(curves, numbers)
    return parts.table(SUMMARY, ordered.collect(curves, function(curve)
        local s = curve.summary
        local function number(value) return value and axis.number(value) or "-" end
        return { numbers[curve.run] .. (curve.evaluation and ", eval" or ""), axis.number(s.count),
            number(s.first), number(s.last), number(s.least), number(s.at_least), number(s.most),
            number(s.at_most), axis.number(s.bad) }
    end))
end

local curves_svg = template.embedded "templates/report/curves.svg"

-- Marks that several pictures refer to: `list` has each text with its id.
local function new_shared(prefix) return { prefix = prefix, list = {}, by_text = {} } end

-- The id of a text in `shared`; `entry`, with its id, is added to the list where the text is new.
local function reference(shared, words, entry)
    local key = shared.by_text[words]
    if not key then
        key = text.block(("%s-%d"):format(shared.prefix, #shared.list + 1))
        entry.id, shared.by_text[words], shared.list[#shared.list + 1] = key, key, entry
    end
    return key
end

-- Replaces paths and marks of a figure's curves by references.
local function share(figure, paths, marks)
    local function path(d) return d and reference(paths, d.text, { d = d }) end
    for _, curve in ipairs(figure.curves) do
        curve.line, curve.band = path(curve.line), path(curve.band)
        if #curve.marks > 0 then
            local inside = curves_svg("marked", { marks = curve.marks })
            curve.shown = reference(marks, inside.text, { inside = inside })
        end
    end
end

-- The variants of a picture, one above the other: the switches show one. A figure without a logarithmic one is linear.
-- marks: shared by all figures, as they are the same along equal axes.
local function picture_of(curves, id, title, marks)
    local paths, pictures, known = new_shared(id), {}, #marks.list
    local has_log = curve_svg.has_log(curves)
    for _, by in ipairs(BY) do
        for _, scale in ipairs(has_log and SCALES or { "linear" }) do
            local figure = curve_svg.figure(curves, { by = by, scale = scale })
            if figure then
                share(figure, paths, marks)
                pictures[#pictures + 1] = parts.render("picture", { f = figure, kinds = text.block(by
                    .. (has_log and " " .. scale or "")), label = html.text(("%s by %s"):format(title, by)),
                    inside = curves_svg("shared", { f = figure }) }).text
            end
        end
    end
    return text.block(parts.render("paths", { list = paths.list, marks = table.move(marks.list, known + 1, #marks.list,
        1, {}) }).text .. table.concat(pictures))
end

-- One figure, or nil where no run has a value for it.
local function figure_of(runs, name, numbers, marks)
    local curves, title = curve_svg.curves(runs, name), series.title(name)
    local id = name:gsub("[^%w_]", "-")
    if #curves == 0 then return nil end
    local thinned = false
    for _, curve in ipairs(curves) do thinned = thinned or curve.summary.count > #curve.bins end
    return parts.figure { id = id, title = title, kind = "curves", picture = picture_of(curves, id, title, marks),
        caption = (thinned and "Mean of each part of the run, in a band from least to greatest." or "Every value.")
            .. (name == "loss" and " Dotted: evaluations." or ""), csv = csv_of(curves, numbers),
        table = summary_of(curves, numbers) }
end

-- Figures that the page leaves out: shown by another one, or the same for all updates.
local function is_shown(runs, name)
    for _, figure in ipairs(series.figures) do
        if figure.name == name then return true end
    end
    if name == "eval.loss" then return #series.points(runs[1], "loss").values == 0 end
    return name:find "^eval%." ~= nil
end

local function duration(seconds)
    if not math.type(seconds) then return "-" end
    if seconds < 120 then return ("%.1f s"):format(seconds) end
    return seconds < 7200 and ("%.0f min"):format(seconds / 60) or ("%.1f h"):format(seconds / 3600)
end

local RUNS = { { title = "#", number = true }, { title = "run" }, { title = "updates", number = true },
    { title = "rows", number = true }, { title = "skipped", number = true }, { title = "checkpoints", number = true },
    { title = "resumed", number = true }, { title = "ended" }, { title = "time", number = true },
    { title = "seed", number = true }, { title = "threads", number = true },
    { title = "memory planned", number = true }, { title = "used", number = true } }

local function bytes(value) return math.type(value) and text.bytes(value) or "-" end

--- The table of the runs.
function run_figures.table(runs)
    return parts.table(RUNS, ordered.collect(runs, function(run, i)
        local n, finish, start = #run.cycles, run.finish or {}, run.start
        return { tostring(i), run.label, axis.number(run.cycles[n] or 0),
            axis.number(run.rows[n] or 0), tostring(#run.skips), tostring(#run.checkpoints), tostring(#run.resumes),
            tostring(finish.reason or "not yet, or killed"), duration(finish.seconds),
            tostring(start.seed or "-"), tostring(start.threads or "-"), bytes(start.planned_bytes),
            bytes(finish.peak_rss_bytes) }
    end))
end

--- The parts of the section of curves.
function run_figures.parts(runs)
    local numbers, figures, marks = {}, {}, new_shared "marks"
    for i, run in ipairs(runs) do numbers[run] = i end
    for _, name in ipairs(series.names(runs)) do
        figures[#figures + 1] = is_shown(runs, name) and figure_of(runs, name, numbers, marks) or nil
    end
    local legend = parts.legend(ordered.collect(runs, function(run, i)
        return { colour = (i - 1) % 6 + 1, text = ("%d  %s"):format(i, run.label) }
    end))
    return { legend, parts.render("switches", {}), parts.render("curves", { figures = figures }) }
end

return run_figures
