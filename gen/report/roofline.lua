-- roofline: kernels of a plan: their work, the floor that follows from it, and their time where it was measured.
local axis = require "report.axis"
local calibration = require "emit.program.calibration"
local html = require "report.html"
local ordered = require "base.ordered"
local parts = require "report.parts"
local template = require "base.template"
local text = require "base.text"

local roofline = {}

local WIDTH, HEIGHT = 960, 560
local LEFT, RIGHT, TOP, BOTTOM = 110, 930, 14, 510

-- Rows of the table and dots of the picture: kernels that take the most time. The CSV file has all.
local MOST_ROWS, MOST_DOTS = 60, 120

local COLOURS = { forward = 1, backward = 2, boundary = 3, views = 4, evaluation = 5 }

-- The rates by which the plan has predicted its times, of one core or of a device: FLOP and bytes per second. Each time
-- is that of arithmetic or of memory, so that the largest quotients are the rates, if a kernel is bound by each.
local function planned_rates(kernels)
    local flops, bytes = 0, 0
    for _, kernel in ipairs(kernels) do
        if kernel.predicted_us > 0 then
            flops = math.max(flops, kernel.flops / kernel.predicted_us * 1e6)
            bytes = math.max(bytes, kernel.bytes / kernel.predicted_us * 1e6)
        end
    end
    return flops, bytes
end

-- The rates of a program with these threads: measured ones, or those of the plan; { flops, bytes, threads, source }.
local function rates_of(facts, prediction)
    local found, threads = not facts.device and calibration.read(facts.profile), prediction.threads or 1
    local rates = { threads = threads, source = prediction.source }
    if not found then
        local flops, bytes = planned_rates(facts.kernels)
        rates.flops, rates.bytes = flops * threads, bytes * threads
        return rates
    end
    local set = found.sets[1]
    for _, one in ipairs(found.sets) do
        if one.threads <= threads then set = one end
    end
    rates.flops, rates.bytes = set.rates[facts.precision] or set.rates.f32, set.rates.memory
    return rates
end

--- The kernels of a plan with times of an update in microseconds: { rates, kernels = { kernel, floor, predicted,
--- measured or nil }, total = of what is measured, else predicted; measured = whether some are }. profile: what
--- `gagen profile` has kept, or nil.
function roofline.of(facts, profile)
    local prediction = calibration.times(facts, profile and profile.threads)
    local found = { rates = rates_of(facts, prediction), kernels = {}, total = 0, measured = profile ~= nil }
    local times = {}
    for _, row in ipairs(profile and profile.kernels or {}) do times[row.name] = row.ms * 1e3 / profile.cycles end
    for i, kernel in ipairs(facts.kernels) do
        local floor = math.max(kernel.flops / found.rates.flops, kernel.bytes / found.rates.bytes) * 1e6 * kernel.calls
        local entry = { place = i, kernel = kernel, floor = floor, predicted = prediction.us[i] * kernel.calls,
            measured = times[kernel.name] }
        found.kernels[i] = entry
        found.total = found.total + (profile and (entry.measured or 0) or entry.predicted)
    end
    return found
end

local function time_of(found, entry) return found.measured and (entry.measured or 0) or entry.predicted end

-- The first `count` of the kernels that take the most time of an update, in the order of the plan.
local function largest(found, count)
    if #found.kernels <= count then return found.kernels end
    local order, kept = ordered.copy(found.kernels), {}
    table.sort(order, function(a, b)
        local x, y = time_of(found, a), time_of(found, b)
        return x > y or x == y and a.place < b.place
    end)
    for i = 1, count do kept[order[i]] = true end
    return ordered.collect(found.kernels, function(entry) return kept[entry] and entry or nil end)
end

-- The dots of a picture: kernels of an update that compute and move something.
local function dots_of(found)
    local list = {}
    for _, entry in ipairs(largest(found, MOST_DOTS)) do
        local k = entry.kernel
        if k.flops > 0 and k.bytes > 0 and k.calls > 0 and entry.floor > 0 then
            local work, time = k.flops * k.calls, entry.measured
            list[#list + 1] = { entry = entry, x = k.flops / k.bytes, y = work / (entry.predicted * 1e-6),
                measured = time and time > 0 and work / (time * 1e-6) or nil }
        end
    end
    return list
end

local function sentence(entry)
    local k = entry.kernel
    return ("%s: %s FLOP, %s per call; floor %.4g us, predicted %.4g us%s per update"):format(k.name,
        text.commas(k.flops), text.bytes(k.bytes), entry.floor, entry.predicted,
        entry.measured and (", measured %.4g us"):format(entry.measured) or "")
end

local function picture_of(found, dots)
    local rates = found.rates
    local knee = rates.flops / rates.bytes
    local x_low, x_high, y_low = knee / 4, knee * 4, rates.flops
    for _, dot in ipairs(dots) do
        x_low, x_high = math.min(x_low, dot.x / 1.5), math.max(x_high, dot.x * 1.5)
        y_low = math.min(y_low, dot.y / 1.5, (dot.measured or dot.y) / 1.5)
    end
    local y_high = rates.flops
    for _, dot in ipairs(dots) do y_high = math.max(y_high, dot.y, dot.measured or dot.y) end
    local x, y = axis.new(x_low, x_high, 6, "log"), axis.new(y_low, y_high * 1.6, 6, "log")
    local function x_of(value) return math.floor(LEFT + x.at(value) * (RIGHT - LEFT) + 0.5) end
    local function y_of(value)
        return math.floor(BOTTOM - math.max(y.at(value), 0) * (BOTTOM - TOP) + 0.5)
    end
    local function ticks(one, at)
        return ordered.collect(one.ticks, function(tick)
            return { at = at(tick), text = html.text(axis.label(tick)) }
        end)
    end
    local first = math.max(x_low, y_low / rates.bytes)
    local f = { width = WIDTH, height = HEIGHT, left = LEFT, right = RIGHT, top = TOP, bottom = BOTTOM,
        columns = ticks(x, x_of), rows = ticks(y, y_of),
        roof = text.block(("M%d %dL%d %dH%d"):format(x_of(first), y_of(first * rates.bytes), x_of(knee),
            y_of(rates.flops), RIGHT)),
        dots = ordered.collect(dots, function(dot)
            return { x = x_of(dot.x), y = y_of(dot.y), measured = dot.measured and y_of(dot.measured),
                colour = COLOURS[dot.entry.kernel.role] or 6, text = html.text(sentence(dot.entry)) }
        end) }
    return parts.render("picture", { f = f, kinds = text.block "roofline", label = html.text "Roofline of the kernels",
        inside = template.embedded "templates/report/plan.svg"("roofline", { f = f }) })
end

-- Columns of the table and of the CSV file; measured ones only where there are some.
local function columns_of(found)
    local list = { { title = "kernel" }, { title = "section" }, { title = "calls", number = true },
        { title = "FLOP of a call", number = true }, { title = "bytes of a call", number = true },
        { title = "floor us", number = true }, { title = "predicted us", number = true } }
    if found.measured then
        list[#list + 1] = { title = "measured us", number = true }
        list[#list + 1] = { title = "of floor", number = true }
    end
    list[#list + 1] = { title = "share of an update" }
    list[#list + 1] = { title = "from" }
    return list
end

local function cells_of(found, entry, plain)
    local k, time = entry.kernel, time_of(found, entry)
    local function us(value) return value and (plain and ("%.4g"):format(value) or axis.number(value)) or "-" end
    local cells = { k.name, k.role, tostring(k.calls), plain and k.flops or text.commas(k.flops),
        plain and k.bytes or text.commas(k.bytes), us(entry.floor), us(entry.predicted) }
    if found.measured then
        cells[#cells + 1] = us(entry.measured)
        cells[#cells + 1] = entry.measured and entry.measured > 0 and ("%.0f %%"):format(100 * entry.floor
            / entry.measured) or "-"
    end
    local share = found.total > 0 and time / found.total or 0
    cells[#cells + 1] = plain and ("%.4f"):format(share) or parts.bar(share)
    cells[#cells + 1] = k.at or ""
    return cells
end

local function csv_of(found)
    local rows = { ordered.collect(columns_of(found), function(c) return (c.title:gsub(" ", "_")) end) }
    for _, entry in ipairs(found.kernels) do rows[#rows + 1] = cells_of(found, entry, true) end
    return rows
end

--- The parts of the section of kernels: found: what roofline.of() gives.
function roofline.parts(found)
    local dots, seen = dots_of(found), {}
    local shown = largest(found, MOST_ROWS)
    local rows = ordered.collect(shown, function(entry) return cells_of(found, entry) end)
    local caption = "times of all calls of an update" .. (#shown < #found.kernels
        and (", the %d longest of %d; the CSV file has all"):format(#shown, #found.kernels) or "")
    shown = parts.table(columns_of(found), rows, caption)
    if #dots == 0 then return { shown } end
    for _, dot in ipairs(dots) do seen[COLOURS[dot.entry.kernel.role] or 6] = dot.entry.kernel.role end
    local legend = {}
    for i = 1, 6 do legend[#legend + 1] = seen[i] and { colour = i, text = seen[i] } or nil end
    return { parts.legend(legend), parts.figure { id = "roofline", title = "Roofline", csv = csv_of(found),
        picture = picture_of(found, dots), table = shown, caption = ("The grey line is the most that %s FLOP/s and %s "
            .. "bytes/s allow%s: %s. Hollow: predicted%s."):format(axis.label(found.rates.flops),
            axis.label(found.rates.bytes), found.rates.threads > 1 and (" with %d threads"):format(found.rates.threads)
            or "", found.rates.source, found.measured and "; filled: measured by gagen profile"
            or "; gagen profile adds measured times") } }
end

return roofline
