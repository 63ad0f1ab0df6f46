-- plot: `gagen plot`: curves of runs in the terminal, or as an SVG.
local colour = require "base.colour"
local columns = require "base.columns"
local curve_svg = require "report.curve_svg"
local diag = require "base.diag"
local ordered = require "base.ordered"
local picture = require "report.picture"
local run_paths = require "command.run_paths"
local series = require "report.series"
local written = require "command.written"

local plot = {}

local PIPE = 80                 -- columns of a picture that no terminal shows

-- Whether texts of this environment are UTF-8.
local function is_utf8()
    for _, name in ipairs { "LC_ALL", "LC_CTYPE", "LANG" } do
        local value = host.environment(name)
        if value and value ~= "" then return value:lower():find "utf%-?8" ~= nil end
    end
    return false
end

local function title_of(name, how)
    return ("%s by %s%s"):format(series.title(name), how.by, how.scale == "log" and ", logarithmic" or "")
end

local function refuse(name, scale)
    diag.fail("gagen", ("plot: no value of '%s' can be drawn: none is finite%s"):format(name,
        scale == "log" and " and above 0" or ""), {})
end

-- The curves of the figure `name`, one for each run that has it.
local function curves_of(runs, name)
    return ordered.collect(runs, function(run)
        local points = series.points(run, name)
        return #points.values > 0 and { label = run.label, run = run, points = points } or nil
    end)
end

-- A line for each curve: its sign, its run, its numbers.
local function legend(curves, how, out)
    for i, curve in ipairs(curves) do
        local sign = how.braille and how.paint(i, utf8.char(0x28C0)) or picture.SIGNS[(i - 1) % #picture.SIGNS + 1]
        local line = ("%s: %s"):format(curve.label, picture.sentence(series.summary(curve.points)))
        local pad = "  "
        for k, part in ipairs(columns.broken(line, how.width - 2, "")) do
            out[#out + 1] = (k == 1 and sign .. " " or pad) .. part
        end
    end
end

local function text_of(curves, name, o)
    local paint = colour.of(1)
    local coloured = paint("curve1", "") ~= ""
    local width = columns.of(1) or PIPE
    local how = { width = width, height = math.min(math.max(width // 5, 6), 20), by = o.by or "update",
        scale = o.scale or "linear", braille = columns.of(1) and is_utf8() and (coloured or #curves == 1),
        paint = function(i, text) return paint("curve" .. (i - 1) % colour.curves + 1, text) end }
    local lines = picture.lines(curves, how)
    if not lines then refuse(name, how.scale) end
    local out = columns.broken(title_of(name, how), width, "")
    table.move(lines, 1, #lines, #out + 1, out)
    legend(curves, how, out)
    return table.concat(out, "\n") .. "\n"
end

-- The curves as an SVG, with a line of its legend for each run.
local function svg_of(runs, name, o)
    local curves = curve_svg.curves(runs, name)
    local how = { by = o.by or "update", scale = o.scale or "linear" }
    local figure = curve_svg.figure(curves, how)
    if not figure then refuse(name, how.scale) end
    return curve_svg.alone(figure, title_of(name, how), ordered.collect(curves, function(curve)
        return { colour = curve.colour, evaluation = curve.evaluation, text = ("%s%s: %s"):format(curve.label,
            curve.evaluation and ", evaluation" or "", picture.short_sentence(curve.summary)) }
    end))
end

--- The command.
function plot.run(o)
    local runs = run_paths.read(o.arguments)
    run_paths.say_notes(runs)
    local name = series.find(runs, o.metric or "loss")
    if o.svg then
        if host.exists(o.svg) == "file" and not (host.read(o.svg) or ""):find("<svg", 1, true) then
            diag.fail(o.svg, "is there already and no picture: --svg names another file", {})
        end
        written(o.svg, svg_of(runs, name, o))
        io.stderr:write(("wrote %s\n"):format(diag.escape(o.svg)))
        return
    end
    io.write(text_of(curves_of(runs, name), name, o))
end

return plot
