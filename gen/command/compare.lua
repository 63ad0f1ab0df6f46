-- compare: `gagen compare A B`: two runs: what differs in their specs, losses at equal rows, speed, memory.
local axis = require "report.axis"
local columns = require "base.columns"
local comparison = require "report.comparison"
local diag = require "base.diag"
local ordered = require "base.ordered"
local run_paths = require "command.run_paths"
local text = require "base.text"

local compare = {}

local function tolerance_of(o)
    local value = o.tol and tonumber(o.tol)
    if o.tol and not (value and value >= 0 and value < math.huge) then
        diag.fail("gagen", ("--tol: '%s', expected a number from 0 on, such as 1e-6"):format(o.tol), {})
    end
    return value
end

local function run_of(path)
    local list = run_paths.read { path }
    if #list == 1 then return list[1] end
    diag.fail(path, ("the log holds %d runs, expected one"):format(#list), {})
end

-- The specs of both: { changes = lines, settings = differences, equal = whether their hashes are, nil: unknown }.
local function specs_of(a, b)
    local x, y = run_paths.record(a), run_paths.record(b)
    local hash_a, hash_b = a.start.spec_sha256, b.start.spec_sha256
    return { changes = x.spec and y.spec and comparison.spec_changes(x.spec, y.spec) or {},
        settings = comparison.setting_changes(x.settings, y.settings),
        equal = hash_a and hash_b and hash_a == hash_b }
end

local function show(value) return axis.number(value) end

-- "80 -> 90 rows/s (+12.5 %)", or "80 rows/s, the same"
local function change(pair, format, unit)
    if pair.a == pair.b then return format(pair.a) .. unit .. ", the same" end
    local part = pair.a ~= 0 and (" (%+.1f %%)"):format(100 * (pair.b / pair.a - 1)) or ""
    return ("%s -> %s%s%s"):format(format(pair.a), format(pair.b), unit, part)
end

local function place_text(place)
    local cycles = place.cycle_a == place.cycle_b and tostring(place.cycle_a)
        or ("%d and %d"):format(place.cycle_a, place.cycle_b)
    return ("update %s: %s -> %s"):format(cycles, show(place.a), show(place.b))
end

-- The line of a compared figure.
local function measured_text(one, tolerance)
    if one.count == 0 then return "the runs have no place of equal rows" end
    local places = ("%d place%s of equal rows"):format(one.count, one.count == 1 and "" or "s")
    if one.worst.difference == 0 then return "equal at " .. places end
    local first = one.first and tolerance and (", first above %g at update %d"):format(tolerance, one.first.cycle_a)
        or one.first and (", first at update %d"):format(one.first.cycle_a) or ""
    return ("%.2g at most at %s, %s%s"):format(one.worst.difference, places, place_text(one.worst), first)
end

local function add_specs(specs, line)
    local differ = #specs.changes + #specs.settings > 0 or specs.equal == false
    line("spec", not differ and (specs.equal and "equal" or "unknown: the logs do not say it") or #specs.changes == 0
        and "equal in its lines" or ("%d lines differ"):format(#specs.changes))
    for _, changed in ipairs(specs.changes) do line("", diag.escape(changed)) end
    for _, s in ipairs(specs.settings) do line("setting", diag.escape(("%s: %s -> %s"):format(s.name, s.a, s.b))) end
end

-- Whether the runs differ too much, in words; nil: there is no tolerance.
local function verdict(found, tolerance)
    if not tolerance then return nil end
    if not found.largest then return "nothing to compare: no loss at equal rows", false end
    local text_of = ("largest difference %.2g, --tol %g"):format(found.largest, tolerance)
    return found.largest <= tolerance and "equal: " .. text_of or "different: " .. text_of, found.largest <= tolerance
end

local function report(a, b, specs, found, tolerance)
    local rows = {}
    local function line(name, value) rows[#rows + 1] = { name, value } end
    line("a", diag.escape(a.given))
    line("b", diag.escape(b.given))
    add_specs(specs, line)
    if found.parameters then line("parameters", change(found.parameters, text.commas, "")) end
    line("loss", measured_text(found.loss, tolerance))
    for _, one in ipairs(found.evaluations) do line("eval." .. one.name, measured_text(one, tolerance)) end
    if found.speed then line("speed", change(found.speed, show, " " .. found.speed.unit .. ", median")) end
    if found.planned then line("memory", change(found.planned, text.bytes, " planned")) end
    if found.used then line("", change(found.used, text.bytes, " used at most")) end
    local judged = verdict(found, tolerance)
    if judged then line("result", judged) end
    local lines = columns.aligned(rows, { columns = { { least = 10 }, { prose = true } }, width = columns.of(1) })
    return table.concat(lines, "\n") .. "\n"
end

--- The command; returns whether the runs are as equal as --tol asks.
function compare.run(o)
    local tolerance = tolerance_of(o)
    local a, b = run_of(o.arguments[1]), run_of(o.arguments[2])
    run_paths.say_notes { a, b }
    local specs, found = specs_of(a, b), comparison.of(a, b, tolerance or 0)
    local _, equal = verdict(found, tolerance)
    if o.json then
        setmetatable(found.evaluations, { array = true })
        io.write(host.json { format = 1, a = a.given, b = b.given, spec = { changes = setmetatable(specs.changes,
            { array = true }), settings = setmetatable(specs.settings, { array = true }), equal = specs.equal },
            figures = found, tolerance = tolerance, equal = equal } .. "\n")
    else
        io.write(report(a, b, specs, found, tolerance))
    end
    return equal ~= false
end

return compare
