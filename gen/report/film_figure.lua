-- film_figure: the memory of the activations over the steps of a micro-step: a rectangle for each value, as wide as the
-- value lives and as high as it is large, at its place.
local axis = require "report.axis"
local html = require "report.html"
local ordered = require "base.ordered"
local parts = require "report.parts"
local template = require "base.template"
local text = require "base.text"

local film_figure = {}

local WIDTH, HEIGHT = 1200, 520
local LEFT, RIGHT, TOP, BOTTOM = 120, 1180, 14, 470

local LARGEST = 12              -- rows of the table

local KINDS = { "forward, kept for the backward pass", "forward only", "evaluation", "backward", "boundary" }

-- The kind of a block: 1 to 5 of KINDS.
local function kind_of(block, steps)
    local born, dies = steps[block.from].section, steps[block.to].section
    if born == "forward" then return dies == "backward" and 1 or 2 end
    return born == "evaluation" and 3 or born == "backward" and 4 or 5
end

-- The step at which most bytes are in use, and how many.
local function peak_of(film)
    local at, most = 1, 0
    for step = 1, #film.steps do
        local sum = 0
        for _, block in ipairs(film.blocks) do
            if block.from <= step and step <= block.to then sum = sum + block.bytes end
        end
        if sum > most then at, most = step, sum end
    end
    return at, most
end

local function step_text(film, step)
    local section, name = film.steps[step].section, film.steps[step].name
    return name:find(section, 1, true) and name or ("%s %s"):format(section, name)
end

-- Where the sections begin on the picture; neighbours too close together have no name.
local function sections_of(film, x_of)
    local list, before = {}, nil
    for step, entry in ipairs(film.steps) do
        if entry.section ~= before then
            list[#list + 1], before = { x = x_of(step), text = html.text(entry.section), named = true }, entry.section
        end
    end
    for i, section in ipairs(list) do
        local to = list[i + 1] and list[i + 1].x or RIGHT
        section.named = to - section.x > 20 * #section.text.text
    end
    return list
end

local function picture_of(film, height)
    local count = #film.steps
    local unit, sign = 1024, "KiB"
    if height >= 2 * 1048576 then unit, sign = 1048576, "MiB" end
    local y = axis.new(0, height / unit, 5, "linear")
    local function x_of(step) return LEFT + (step - 1) * (RIGHT - LEFT) // count end
    local function y_of(bytes) return math.floor(BOTTOM - bytes / height * (BOTTOM - TOP) + 0.5) end
    local f = { width = WIDTH, height = HEIGHT, left = LEFT, right = RIGHT, top = TOP, bottom = BOTTOM,
        sections = sections_of(film, x_of), ticks = ordered.collect(y.ticks, function(tick)
            return { at = y_of(tick * unit), text = html.text(("%g %s"):format(tick, sign)) }
        end) }
    f.blocks = ordered.collect(film.blocks, function(block)
        local top, bottom, left = y_of(block.offset + block.bytes), y_of(block.offset), x_of(block.from)
        return bottom > top and { x = left, y = top, width = math.max(x_of(block.to + 1) - left, 1),
            height = bottom - top,
            colour = kind_of(block, film.steps), text = html.text(("%s, %s: %s to %s"):format(block.name,
                text.bytes(block.bytes), step_text(film, block.from), step_text(film, block.to))) } or nil
    end)
    local inside = template.embedded "templates/report/plan.svg"("film", { f = f })
    return parts.render("picture", { f = f, kinds = text.block "film", inside = inside,
        label = html.text "Memory of the activations over the steps of a micro-step" })
end

local COLUMNS = { { title = "value" }, { title = "bytes", number = true }, { title = "from" }, { title = "to" } }

local function largest_of(film)
    local list = ordered.copy(film.blocks)
    table.sort(list, function(a, b)
        if a.bytes ~= b.bytes then return a.bytes > b.bytes end
        return a.offset < b.offset or a.offset == b.offset and a.from < b.from
    end)
    return parts.table(COLUMNS, ordered.collect(list, function(block, i)
        return i <= LARGEST and { block.name, text.commas(block.bytes), step_text(film, block.from),
            step_text(film, block.to) } or nil
    end), #list > LARGEST and ("the %d largest of %d"):format(LARGEST, #list) or nil)
end

local function csv_of(film)
    local rows = { { "value", "offset", "bytes", "from_step", "to_step" } }
    for _, block in ipairs(film.blocks) do
        rows[#rows + 1] = { block.name, block.offset, block.bytes, block.from, block.to }
    end
    return rows
end

--- The parts of the film of a plan, which may have no blocks.
function film_figure.parts(film)
    local height = 0
    for _, block in ipairs(film.blocks) do height = math.max(height, block.offset + block.bytes) end
    if height == 0 then return { parts.paragraph "The activations take no memory." } end
    local at, most = peak_of(film)
    local seen = {}
    for _, block in ipairs(film.blocks) do seen[kind_of(block, film.steps)] = true end
    local legend = ordered.collect(KINDS, function(kind, i) return seen[i] and { colour = i, text = kind } or nil end)
    return { parts.legend(legend), parts.figure { id = "film", title = "Film of the activations", csv = csv_of(film),
        picture = picture_of(film, height), table = largest_of(film),
        caption = ("Offset in the arena over the steps of a micro-step, %d values at their places, as far as a line "
            .. "is thick enough. %s of %s hold values "
            .. "at step %d of %d, %s; no step has more."):format(#film.blocks, text.bytes(most),
            text.bytes(height), at, #film.steps, step_text(film, at)) } }
end

return film_figure
