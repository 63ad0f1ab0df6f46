-- axis: round numbers along an axis, and places on it.
local text = require "base.text"

local axis = {}

-- The round step that divides a span into at most `count` parts: 1, 2 or 5 times a power of ten.
local function step_of(span, count)
    local power = 10.0 ^ math.floor(math.log(span / count, 10))
    for _, factor in ipairs { 1, 2, 5, 10 } do
        if span / (factor * power) <= count + 1e-9 then return factor * power end
    end
    return 10 * power
end

local function linear_ticks(low, high, count)
    local step, list = step_of(high - low, count), {}
    for i = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) do list[#list + 1] = i * step end
    return list
end

-- Powers of ten, with 2 and 5 times them where there are few.
local function log_ticks(low, high, count)
    local first, last = math.floor(math.log(low, 10) - 1e-9), math.ceil(math.log(high, 10) + 1e-9)
    local every = math.max(1, math.ceil((last - first) / count))
    local factors = last - first <= 1 and { 1, 2, 3, 5, 7 } or last - first <= count / 3 and { 1, 2, 5 } or { 1 }
    local list = {}
    for power = first, last do
        for _, factor in ipairs(power % every == 0 and factors or {}) do
            local value = factor * 10.0 ^ power
            local inside = value >= low * (1 - 1e-9) and value <= high * (1 + 1e-9)
            if inside and value < math.huge then list[#list + 1] = value end
        end
    end
    return #list >= 2 and list or linear_ticks(low, high, count)
end

-- The largest number, and a span below that of any step.
local LARGEST, LEAST = 0x1.fffffffffffffp+1023, 2.0 ^ -1000

-- A span around values that are all equal, or nearly: a tenth of them to each side.
local function widened(low, high)
    if high - low > math.max(1e-12 * math.max(math.abs(low), math.abs(high)), LEAST) then return low, high end
    local by = low == 0 and 1 or math.max(math.abs(low) / 10, LEAST)
    return math.max(low - by, -LARGEST), math.min(high + by, LARGEST)
end

--- An axis over low..high with about `count` round numbers: { low, high, ticks, at(value) = its place from 0 to 1 }.
--- scale: "linear", or "log" for positive numbers.
function axis.new(low, high, count, scale)
    low, high = widened(low, high)
    if scale == "log" and low > 0 then
        local from, span = math.log(low), math.log(high) - math.log(low)
        return { low = low, high = high, ticks = log_ticks(low, high, count),
            at = function(value) return (math.log(value) - from) / span end }
    end
    if high - low > LARGEST then
        return { low = low, high = high, ticks = { low, 0.0, high },
            at = function(value) return (value / 2 - low / 2) / (high / 2 - low / 2) end }
    end
    return { low = low, high = high, ticks = linear_ticks(low, high, count),
        at = function(value) return (value - low) / (high - low) end }
end

--- A number for people: 4 significant digits, commas in large whole numbers, "nan" and "inf".
function axis.number(value)
    if value ~= value then return "nan" end
    if math.abs(value) == math.huge then return value > 0 and "inf" or "-inf" end
    local whole = math.tointeger(value)
    if whole and math.abs(whole) < 10 ^ 15 then return text.commas(whole) end
    if math.abs(value) >= 1000 and math.abs(value) < 1e15 then return text.commas(math.floor(value + 0.5)) end
    return (("%.4g"):format(value):gsub("e([+-])0+(%d)", "e%1%2"))
end

local UNITS = { { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" } }

--- A number beside an axis: at most about five signs, 12000 as 12k.
function axis.label(value)
    for _, unit in ipairs(UNITS) do
        if math.abs(value) >= unit[1] * 10 or math.abs(value) >= unit[1] and unit[1] > 1e3 then
            return ("%.4g%s"):format(value / unit[1], unit[2])
        end
    end
    return (("%.4g"):format(value):gsub("e([+-])0+(%d)", "e%1%2"))
end

return axis
