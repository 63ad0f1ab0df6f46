-- rate_curve: a learning rate from the losses of a run whose rate has risen from update to update by one factor.
--
-- The loss is smoothed: its mean over the updates within REACH. The curve ends before the first loss that is not finite
-- or the first smoothed loss above LIMIT times the least so far. Up to the least, the suggested rate is the one around
-- which the smoothed loss falls most, from REACH updates before to REACH updates behind. A loss that falls by no more
-- than its noise gives no suggestion.
local rate_curve = {}

local REACH, LIMIT = 5, 4

-- A fall counts if it exceeds this many standard deviations of the losses around the curve, and this part of the loss.
local DEVIATIONS, PART = 2, 0.01

local function is_finite(x) return math.type(x) and x - x == 0 end

-- The mean of values first..last, as far as there are any.
local function mean(values, first, last)
    local from, to, sum = math.max(first, 1), math.min(last, #values), 0
    for i = from, to do sum = sum + values[i] end
    return sum / (to - from + 1)
end

-- The smoothed losses up to the end of the curve, and why it ends there.
local function smoothed(losses)
    local finite, out, least = {}, {}, nil
    for i, loss in ipairs(losses) do
        if not is_finite(loss) then break end
        finite[i] = loss
    end
    for i in ipairs(finite) do
        local value = mean(finite, i - REACH, i + REACH)
        if least and value > least + (LIMIT - 1) * math.abs(least) then
            return out, ("exceeds %d times the least"):format(LIMIT)
        end
        out[i], least = value, math.min(value, least or value)
    end
    return out, #finite < #losses and "is not finite" or nil
end

-- The standard deviation of the losses around the curve, up to place `last`.
local function noise(losses, curve, last)
    local sum = 0
    for i = 1, last do sum = sum + (losses[i] - curve[i]) ^ 2 end
    return math.sqrt(sum / last)
end

-- The place up to `least` around which the curve falls most, or nil.
local function steepest(curve, least)
    local at, most = nil, 0
    for i = 1 + REACH, math.min(least, #curve - REACH) do
        local fall = curve[i - REACH] - curve[i + REACH]
        if fall > most then at, most = i, fall end
    end
    return at
end

--- Reads the losses of updates, of which one that is no finite number is the end. Returns { curve = smoothed losses,
--- least = place of the least, pick = place of the suggestion, ends = why the curve ends before the losses }; the last
--- three may be nil.
function rate_curve.read(losses)
    local curve, ends = smoothed(losses)
    local found = { curve = curve, ends = ends }
    for i, value in ipairs(curve) do
        if not found.least or value < curve[found.least] then found.least = i end
    end
    if not found.least then return found end
    local fall = curve[1] - curve[found.least]
    if fall > math.max(DEVIATIONS * noise(losses, curve, found.least), PART * math.abs(curve[1])) then
        found.pick = steepest(curve, found.least)
    end
    return found
end

local LABEL = 10      -- columns of a loss and the axis

-- The powers of ten that the rates pass, below the axis; column(i): of place i, from 0.
local function decades(rates, count, column, columns)
    local line = ""
    for i = 2, count do
        local power = math.floor(math.log(rates[i], 10) + 1e-9)
        local label, from = ("1e%d"):format(power), LABEL + column(i)
        local passed = power > math.floor(math.log(rates[i - 1], 10) + 1e-9)
        if passed and from > #line and from + #label <= columns then line = line .. (" "):rep(from - #line) .. label end
    end
    return line
end

--- The curve as `rows` lines of text of at most `columns` signs, with an o at the suggestion. rates: those of the
--- updates.
function rate_curve.picture(found, rates, columns, rows)
    local curve, width, height = found.curve, columns - LABEL, rows - 2
    local low, high = math.min(table.unpack(curve)), math.max(table.unpack(curve))
    local function column(i) return (i - 1) * (width - 1) // math.max(#curve - 1, 1) end
    local function row(value) return math.floor((high - value) / math.max(high - low, 1e-300) * (height - 1) + 0.5) end
    local grid, lines = {}, {}
    for k = 0, height - 1 do grid[k] = {} end
    for i, value in ipairs(curve) do grid[row(value)][column(i)] = "*" end
    if found.pick then grid[row(curve[found.pick])][column(found.pick)] = "o" end
    for k = 0, height - 1 do
        local label = k % 4 == 0 and ("%.4g"):format(high - (high - low) * k / (height - 1)) or ""
        local signs = {}
        for x = 0, width - 1 do signs[x + 1] = grid[k][x] or " " end
        lines[k + 1] = (("%" .. LABEL - 2 .. "s |%s"):format(label, table.concat(signs)):gsub(" +$", ""))
    end
    lines[height + 1] = (" "):rep(LABEL - 1) .. "+" .. ("-"):rep(width)
    lines[height + 2] = decades(rates, #curve, column, columns)
    return lines
end

return rate_curve
