-- gpu_report: the measurements of `make bench-gpu` as JSON and as tables.
local gpu_kernels = dofile "bench/gpu_kernels.lua"
local report = dofile "bench/report.lua"
local statistics = dofile "bench/statistics.lua"

local gpu_report = {}

-- Kernels in the table of a case: those with the most time.
local SHOWN = 25

-- A side: its milliseconds of an update, and what it does per second; or why it was not run.
local function facts(side, amount)
    if side.failed then return { name = side.name, not_run = side.failed } end
    local ms = statistics.spread(side.ms)
    return { name = side.name, turns_ms = side.ms, ms = ms, per_second = 1e3 * amount / ms.median }
end

--- A row of the report. list: our side, then the others; kernels: of gpu_kernels.rows; missing: why there is no
--- yardstick.
function gpu_report.row(case, list, kernels, missing)
    local amount, sums = case.rows * case.accumulate * case.count, gpu_kernels.sums(kernels)
    local ours, others = facts(list[1], amount), setmetatable({}, { array = true })
    ours.cold_s, ours.warm_s = case.cold, case.warm
    ours.predicted_ms, ours.kernels_ms = sums.predicted_ms, sums.ms
    ours.floor_ms = sums.floor_ms > 0 and sums.floor_ms or nil
    ours.floor_share = ours.floor_ms and ours.floor_ms / ours.ms.median
    ours.yardstick_share = sums.products_ms > 0 and sums.yardstick_ms / sums.products_ms or nil
    for i = 2, #list do
        local other = facts(list[i], amount)
        other.ratio = other.ms and statistics.ratios(list[i].ms, list[1].ms) or nil
        others[i - 1] = other
    end
    return { config = case.name, title = case.title, precision = case.precision, unit = case.unit, rows = case.rows,
        accumulate = case.accumulate, ours = ours, others = others, no_yardstick = missing,
        kernels = setmetatable(kernels, { array = true }) }
end

local function number(x) return x and ("%.4g"):format(x) or "NOT RUN" end

local function percent(x) return x and ("%.0f %%"):format(100 * x) or "NOT RUN" end

local function spread(s) return ("%.4g (%.4g to %.4g)"):format(s.median, s.least, s.most) end

local HEADS = { "model", "precision", "rows, A", "per second", "ms of an update", "predicted, ms", "floor, ms", "of it",
    "of cuBLASLt's rate", "start, s: cold, warm" }

local function main_table(rows)
    local list = {}
    for i, row in ipairs(rows) do
        local ours = row.ours
        list[i] = { row.title, row.precision, ("%d, %d"):format(row.rows, row.accumulate),
            ("%.4g %s"):format(ours.per_second, row.unit), spread(ours.ms), number(ours.predicted_ms),
            number(ours.floor_ms), percent(ours.floor_share), percent(ours.yardstick_share),
            ("%.2f, %.2f"):format(ours.cold_s, ours.warm_s) }
    end
    return report.table(HEADS, list)
end

local function others_table(rows)
    local list = {}
    for _, row in ipairs(rows) do
        for _, other in ipairs(row.others) do
            list[#list + 1] = { row.title, row.precision, other.name,
                other.ms and ("%.4g %s"):format(other.per_second, row.unit) or "NOT RUN: " .. other.not_run,
                other.ms and spread(other.ms) or "", other.ratio and spread(other.ratio) or "" }
        end
    end
    return report.table({ "model", "precision", "program", "per second", "ms of an update", "its ms over ours" }, list)
end

local function kernels_table(row)
    local list = {}
    for i = 1, math.min(SHOWN, #row.kernels) do
        local k = row.kernels[i]
        list[i] = { k.name, ("%g"):format(k.calls), number(k.ms), number(k.predicted_ms), number(k.floor_ms),
            k.yardstick_ms and number(k.yardstick_ms) or "" }
    end
    local rest, ms = #row.kernels - #list, 0
    for i = #list + 1, #row.kernels do ms = ms + row.kernels[i].ms end
    if rest > 0 then list[#list + 1] = { ("%d others"):format(rest), "", number(ms), "", "", "" } end
    return report.table({ "kernel", "calls", "ms", "predicted", "floor", "cuBLASLt" }, list)
end

local function text_of(all)
    local torch = all.torch and "PyTorch " .. all.torch or "PyTorch: NOT RUN, " .. all.no_torch
    local parts = { "# make bench-gpu",
        ("%s, driver %s; %s; commit %s; %d turns of %g s; %s."):format(all.gpu.name, all.gpu.driver, all.date,
            all.commit, all.turns, all.seconds, torch),
        "Medians over turns, with the least and the most; ratios are those of one turn. docs/PERFORMANCE.md tells the "
            .. "columns.", main_table(all.rows) }
    local others = false
    for _, row in ipairs(all.rows) do others = others or #row.others > 0 end
    if others then parts[#parts + 1] = others_table(all.rows) end
    for _, row in ipairs(all.rows) do
        parts[#parts + 1] = ("## %s, %s\n\nMilliseconds of an update, each kernel alone between two events%s."):format(
            row.title, row.precision, row.no_yardstick and "; cuBLASLt: NOT RUN, " .. row.no_yardstick or "")
        parts[#parts + 1] = kernels_table(row)
    end
    return table.concat(parts, "\n\n") .. "\n"
end

--- Writes gpu.json and gpu.md to a folder of the GPU's name in o.results; returns the text of the latter.
function gpu_report.write(o, rows)
    local all = { gpu = o.gpu, date = os.date "!%Y-%m-%d", commit = report.commit(), turns = o.turns,
        seconds = o.seconds, torch = o.torch, no_torch = o.no_torch, rows = setmetatable(rows, { array = true }) }
    local folder = o.results .. "/" .. o.gpu.name:lower():gsub("[^%w]+", "-")
    assert(host.folder(folder))
    assert(host.write(folder, "gpu.json", host.json(all) .. "\n"))
    local text = text_of(all)
    assert(host.write(folder, "gpu.md", text))
    return text
end

return gpu_report
