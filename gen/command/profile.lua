-- profile: the time of each kernel of a program, measured by its train-probe, beside the predicted one.
local calibration = require "emit.program.calibration"
local columns = require "base.columns"
local diag = require "base.diag"
local ordered = require "base.ordered"
local text = require "base.text"

local profile = {}

-- In the program's folder: its last profile.
profile.FILE = "profile.json"

-- Words for train-probe where the command line has none: updates of one micro-batch, without checkpoints.
local USUAL = { "--cycles", "10", "--overfit", "1" }

-- Kernels below this share of the time are no part of the error.
local LEAST_SHARE = 0.01

-- Keeps what was measured beside the program, for `gagen report`: the milliseconds of each kernel in so many updates.
local function keep(folder, threads, rows, cycles)
    local kernels = ordered.collect(rows, function(row) return { name = row.name, calls = row.calls, ms = row.ms } end)
    local content = host.json { format = 1, plan_sha256 = host.sha256(host.read(folder .. "/plan.json")),
        threads = threads, cycles = cycles, kernels = setmetatable(kernels, { array = true }) }
    local done, message = host.write(folder, profile.FILE, content .. "\n")
    if not done then diag.fail(folder .. "/" .. profile.FILE, message, { kind = "environment" }) end
end

--- Runs the train-probe in `folder` with these threads and further words. Returns { name, calls, ms, at, least =
--- microseconds of the shortest call } of each kernel, the longest first.
function profile.measure(folder, threads, words)
    local command = { host.absolute(folder .. "/train-probe"), "--profile", "--quiet", "--threads", tostring(threads),
        quiet = true }
    local status, said = host.run(table.move(words, 1, #words, #command + 1, command))
    if status ~= 0 then
        diag.fail(folder .. "/train-probe", (said or "cannot be started"):gsub("\n+$", ""), { kind = "environment" })
    end
    local list = {}
    for line in said:gmatch("[^\n]+") do
        local name, calls, ms, least, at =
            line:match("^([%w_]+) +(%d+) +([%d.]+) +[%d.]+ +%S+ +%S+ +([%d.]+)  (.*)$")
        if name then
            list[#list + 1] = { name = name, calls = tonumber(calls), ms = tonumber(ms), least = tonumber(least),
                at = at }
        end
    end
    return list
end

-- The median of a list that is not empty.
local function median(list)
    table.sort(list)
    return (list[(#list + 1) // 2] + list[#list // 2 + 1]) / 2
end

-- Sets of each row the share of the time, the predicted milliseconds and their error. Returns the total, the sum of the
-- predicted ones and the median error of the kernels that count.
local function compare(rows, kernels, us)
    local total, sum, errors, place, cycles = 0, 0, {}, {}, 0
    for i, kernel in ipairs(kernels) do place[kernel.name] = i end
    for _, row in ipairs(rows) do
        local kernel = kernels[place[row.name]]
        total = total + row.ms
        if kernel.role == "forward" then cycles = row.calls / kernel.calls end
    end
    for _, row in ipairs(rows) do
        local i = place[row.name]
        -- in the plan a function of the boundary is one call, with all that it does in an update
        local calls = kernels[i].role == "boundary" and cycles * kernels[i].calls or row.calls
        row.share, row.predicted = row.ms / total, calls * us[i] / 1e3
        row.error = row.predicted / row.ms - 1
        sum = sum + row.predicted
        if row.share >= LEAST_SHARE then errors[#errors + 1] = math.abs(row.error) end
    end
    return total, sum, median(errors), cycles
end

local COLUMNS = { { name = true, least = 18 }, { right = true, least = 8 }, { right = true, least = 10 },
    { right = true, least = 6 }, { right = true, least = 10 }, { right = true, least = 7 }, { name = true } }

-- The table of measured rows beside `prediction` (calibration.times) of the kernels of a plan.
local function text_of(facts, prediction, rows, width)
    local total, sum, middle, cycles = compare(rows, facts.kernels, prediction.us)
    local cells = ordered.collect(rows, function(row)
        return { row.name, text.commas(row.calls), ("%.3f"):format(row.ms), ("%.1f"):format(100 * row.share),
            ("%.3f"):format(row.predicted), row.ms > 0 and ("%+.0f %%"):format(100 * row.error) or "-", row.at }
    end)
    table.insert(cells, 1, { "kernel", "calls", "ms", "%", "predicted", "error", "from" })
    local lines = columns.aligned(cells, { columns = COLUMNS, indent = 0, width = width })
    lines[#lines + 1] = ("%.3f ms measured, %.3f ms predicted with %d thread%s: %s"):format(total, sum,
        prediction.threads, prediction.threads > 1 and "s" or "", prediction.source)
    lines[#lines + 1] = ("median error of the kernels above %.0f %% of the time: %.0f %%"):format(100 * LEAST_SHARE,
        100 * middle)
    return table.concat(lines, "\n") .. "\n", cycles
end

--- The command: o.rest goes to train-probe. folder: that of the program, whose train-probe is made.
function profile.run(folder, facts, o)
    if not facts.busy then
        diag.fail(folder, "gagen profile measures programs for the processor, expected another target", {})
    end
    local prediction = calibration.times(facts, o.threads)
    local rows = profile.measure(folder, prediction.threads, #o.rest > 0 and o.rest or USUAL)
    local shown, cycles = text_of(facts, prediction, rows, columns.of(1))
    io.write(shown)
    keep(folder, prediction.threads, rows, cycles)
    return 0
end

return profile
