-- options: the variables of the environment that drivers of bench read, checked.
local diag = require "base.diag"
local profile = require "emit.program.profile"

local options = {}

--- Refuses a variable, or what it names.
function options.fail(...) diag.fail("bench", string.format(...), {}) end

--- The words of a variable, each one of `allowed`.
function options.words(name, default, allowed)
    local list = {}
    for word in (host.environment(name) or default):gmatch("%S+") do
        if not (" " .. allowed .. " "):find(" " .. word .. " ", 1, true) then
            options.fail("%s: '%s', expected some of %s", name, word, allowed)
        end
        list[#list + 1] = word
    end
    if #list == 0 then options.fail("%s is empty, expected some of %s", name, allowed) end
    return list
end

-- A number above 0; kind: "integer" or "float".
local function number_in(name, text, kind)
    local n = tonumber(text)
    if kind == "integer" then n = math.tointeger(n) end
    if not n or not (n > 0 and n < 1e6) then options.fail("%s: '%s', expected a%s number above 0", name, text,
        kind == "integer" and " whole" or "") end
    return n
end

--- A number above 0; kind: "integer" or "float".
function options.number(name, default, kind) return number_in(name, host.environment(name) or default, kind) end

--- Whole numbers above 0, one at least.
function options.integers(name, default)
    local list = {}
    for word in (host.environment(name) or default):gmatch("%S+") do
        list[#list + 1] = number_in(name, word, "integer")
    end
    if #list == 0 then options.fail("%s is empty, expected whole numbers above 0", name) end
    return list
end

function options.flag(name)
    local text = host.environment(name) or "0"
    if text ~= "0" and text ~= "1" then options.fail("%s: '%s', expected 0 or 1", name, text) end
    return text == "1"
end

--- The output of a command, without the spaces around it; nil if it fails.
function options.output(...)
    local status, text = host.run { quiet = true, ... }
    return status == 0 and text:match("^%s*(.-)%s*$") or nil
end

-- Keeps other drivers from OUT: each removes the programs of the one before.
local function lock(out)
    local file, message = host.lock(out .. "/.lock")
    if not file then options.fail("OUT: %s", message) end
    if not file:take "alone" then options.fail("OUT: another make bench uses %s, expected a folder of its own", out) end
    return file
end

--- The settings of all drivers: { march, profile, results, gagen, out, lock = keeps others from `out` }.
function options.common()
    local o = { march = host.environment "MARCH", results = host.environment "RESULTS" or "bench/results",
        gagen = host.environment "GAGEN" or "out/gagen", out = host.absolute(assert(host.environment "OUT")) }
    o.profile = o.march and o.march ~= "native" and o.march or profile.native(host.cpu())
    if not profile.get(o.profile) then options.fail("MARCH: no profile '%s'", o.march) end
    assert(host.folder(o.out))
    o.lock = lock(o.out)
    return o
end

--- The program that measures the greatest rates of this machine (templates/calibrate/rates.c), compiled once.
function options.rates_program(o)
    local program = o.out .. "/rates-" .. o.profile
    local command = { host.environment "CC" or "cc", "-O3", "-pthread", "-o", program, "templates/calibrate/rates.c" }
    local flags = profile.get(o.profile).flags
    local compiled = assert(measured(table.move(flags, 1, #flags, #command + 1, command)))
    if compiled.status ~= 0 then options.fail("templates/calibrate/rates.c: %s", compiled.err) end
    return program
end

--- Measures the rates once more with so many threads; the greatest so far stay in `found`.
function options.add_rates(program, threads, found)
    for name, rate in assert(measured { program, tostring(threads) }).out:gmatch("(%w+) (%S+)") do
        found[name] = math.max(found[name] or 0, tonumber(rate))
    end
end

return options
