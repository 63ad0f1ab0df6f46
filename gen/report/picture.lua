-- picture: curves as lines of text, in a terminal or a file. Braille signs have 2 x 4 dots each and need colours to
-- tell curves apart; else a curve has a sign of its own.
local axis = require "report.axis"

local picture = {}

-- The signs of curves, one after the other.
picture.SIGNS = { "*", "o", "+", "x", "#", "@", "%", "&" }

-- Bits of a braille sign, by column and row of its dots.
local DOTS = { { 0x01, 0x02, 0x04, 0x40 }, { 0x08, 0x10, 0x20, 0x80 } }

-- The least and the largest number that `each` passes to its function; nil, nil: none.
local function range_of(each)
    local low, high
    each(function(value)
        low, high = low and math.min(low, value) or value, high and math.max(high, value) or value
    end)
    return low, high
end

local function xs_of(curve, how) return how.by == "rows" and curve.points.rows or curve.points.cycles end

local function is_drawn(value, how) return value - value == 0 and (how.scale ~= "log" or value > 0) end

-- Both axes of the curves; nil where no value can be drawn.
local function axes_of(curves, how, width, height)
    local x_low, x_high = range_of(function(see)
        for _, curve in ipairs(curves) do
            local xs = xs_of(curve, how)
            if #xs > 0 then see(xs[1]) see(xs[#xs]) end
        end
    end)
    local y_low, y_high = range_of(function(see)
        for _, curve in ipairs(curves) do
            for _, value in ipairs(curve.points.values) do
                if is_drawn(value, how) then see(value) end
            end
        end
    end)
    if not y_low then return nil end
    return axis.new(x_low, x_high, math.max(width // 14, 1), "linear"),
        axis.new(y_low, y_high, math.max(height // 3, 2), how.scale)
end

-- A grid of dots of all curves: grid[row][column] = { [curve] = bits }, from the top and the left, from 0.
local function new_grid(height)
    local grid = {}
    for row = 0, height - 1 do grid[row] = {} end
    return grid
end

-- Sets the dot x, y of a curve; fine: the dots of a sign in each direction.
local function set_dot(grid, fine, curve, x, y)
    local row, column = y // fine.y, x // fine.x
    local cell = grid[row][column] or {}
    grid[row][column] = cell
    cell[curve] = (cell[curve] or 0) | (fine.x == 1 and 1 or DOTS[x % fine.x + 1][y % fine.y + 1])
end

-- A line between two points, in dots.
local function draw_line(grid, fine, curve, x1, y1, x2, y2)
    local steps = math.max(math.abs(x2 - x1), math.abs(y2 - y1))
    for i = 0, steps do
        local part = steps == 0 and 0 or i / steps
        set_dot(grid, fine, curve, math.floor(x1 + (x2 - x1) * part + 0.5), math.floor(y1 + (y2 - y1) * part + 0.5))
    end
end

-- Draws a curve; place: of a point, in dots. A value that cannot be drawn interrupts it.
local function draw_curve(grid, fine, number, curve, how, place)
    local xs, before_x, before_y = xs_of(curve, how), nil, nil
    for i, value in ipairs(curve.points.values) do
        if is_drawn(value, how) then
            local x, y = place(xs[i], value)
            draw_line(grid, fine, number, before_x or x, before_y or y, x, y)
            before_x, before_y = x, y
        else
            before_x, before_y = nil, nil
        end
    end
end

-- The sign of a cell: its curve with the most dots, in the order of the curves.
local function sign_of(cell, how)
    if not cell then return " " end
    local best, most = nil, -1
    for curve = 1, how.curves do
        local bits, count = cell[curve] or 0, 0
        while bits > 0 do
            count, bits = count + (bits & 1), bits >> 1
        end
        if count > most and cell[curve] then best, most = curve, count end
    end
    if not how.braille then return picture.SIGNS[(best - 1) % #picture.SIGNS + 1] end
    return how.paint(best, utf8.char(0x2800 + cell[best]))
end

-- Marks below the axis: where values are not finite, updates were skipped, the run was resumed.
local function marks_of(curves, how, x, width)
    local marks, found = {}, {}
    local function mark(sign, at)
        local column = math.floor(x.at(at) * (width - 1) + 0.5)
        if column >= 0 and column < width then marks[column], found[sign] = sign, true end
    end
    for _, curve in ipairs(curves) do
        local xs = xs_of(curve, how)
        for i, value in ipairs(curve.points.values) do
            if value - value ~= 0 then mark("!", xs[i]) end
        end
        for _, list in ipairs(how.by == "rows" and {} or { { "s", curve.run.skips }, { "r", curve.run.resumes } }) do
            for _, event in ipairs(list[2]) do mark(list[1], event.cycle) end
        end
    end
    return marks, found
end

-- The numbers below the axis, as far as they fit.
local function x_labels(x, indent, width)
    local line = (" "):rep(indent)
    for _, tick in ipairs(x.ticks) do
        local label, column = axis.label(tick), indent + math.floor(x.at(tick) * (width - 1) + 0.5)
        local from = math.max(math.min(column - #label // 2, indent + width - #label), 0)
        if from > #line or from == #line and #line == indent then
            line = line .. (" "):rep(from - #line) .. label
        end
    end
    return line
end

local MARKS = { { "!", "not finite" }, { "s", "skipped update" }, { "r", "resumed" } }

-- The numbers beside the rows, by row.
local function y_labels(y, height)
    local labels, most = {}, 1
    for _, tick in ipairs(y.ticks) do
        local label, row = axis.label(tick), math.floor((1 - y.at(tick)) * (height - 1) + 0.5)
        labels[row], most = label, math.max(most, #label)
    end
    return labels, most
end

--- The curves as lines of at most `how.width` signs. curves: { label, run, points }. how: { width, height, by =
--- "update" or "rows", scale = "linear" or "log", braille, paint(curve, text) }. nil: no value can be drawn.
function picture.lines(curves, how)
    how.curves = #curves
    local x, y = axes_of(curves, how, how.width, how.height)
    if not y then return nil end
    local labels, most = y_labels(y, how.height)
    local width = math.max(how.width - most - 1, 4)
    local fine = how.braille and { x = 2, y = 4 } or { x = 1, y = 1 }
    local grid = new_grid(how.height)
    local function place(at, value)
        return math.floor(x.at(at) * (width * fine.x - 1) + 0.5),
            math.floor((1 - y.at(value)) * (how.height * fine.y - 1) + 0.5)
    end
    for i, curve in ipairs(curves) do draw_curve(grid, fine, i, curve, how, place) end
    local lines = {}
    for row = 0, how.height - 1 do
        local signs = {}
        for column = 0, width - 1 do signs[column + 1] = sign_of(grid[row][column], how) end
        lines[row + 1] = (("%" .. most .. "s|"):format(labels[row] or "") .. table.concat(signs)):gsub(" +$", "")
    end
    local marks, found = marks_of(curves, how, x, width)
    local under = {}
    for column = 0, width - 1 do under[column + 1] = marks[column] or "-" end
    lines[#lines + 1] = (" "):rep(most) .. "+" .. table.concat(under)
    lines[#lines + 1] = x_labels(x, most + 1, width)
    for _, mark in ipairs(MARKS) do
        if found[mark[1]] then lines[#lines + 1] = ("%s  %s"):format(mark[1], mark[2]) end
    end
    return lines
end

--- A sentence of a curve's numbers. s: what series.summary gives.
function picture.sentence(s)
    local bad = s.bad > 0 and (", %d not finite"):format(s.bad) or ""
    if not s.first then return ("%d values%s"):format(s.count, bad) end
    local function value(which) return ("%s at %d"):format(axis.number(s[which]), s["at_" .. which]) end
    if s.count == 1 then return value "first" .. bad end
    return ("%s to %s, least %s, greatest %s%s"):format(value "first", value "last", value "least", value "most", bad)
end

--- A shorter one.
function picture.short_sentence(s)
    if not s.first then return "no finite value" end
    return ("%s to %s, least %s at %d"):format(axis.number(s.first), axis.number(s.last), axis.number(s.least),
        s.at_least)
end

return picture
