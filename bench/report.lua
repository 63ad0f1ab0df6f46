-- report: the measurements of `make bench` as JSON and as tables.
local statistics = dofile "bench/statistics.lua"

local report = {}

local MIB = 1024 * 1024

-- The side with the smallest median that ran in all its turns, ours apart; nil if none did.
local function best_of(list)
    local best
    for i = 2, #list do
        local side = list[i]
        local ran = not side.failed
        if ran and (not best or statistics.median(side.ms) < statistics.median(best.ms)) then best = side end
    end
    return best
end

local function facts(side)
    local start = side.start ~= math.huge and side.start or nil
    if side.failed then return { name = side.name, not_run = side.failed } end
    return { name = side.name, turns_ms = side.ms, ms = statistics.spread(side.ms), peak_bytes = side.peak,
        start_s = start }
end

--- A row of the report. list: our side, then the others; more: { floor_ms, load, rates }.
function report.row(case, list, more)
    local ours, best = facts(list[1]), best_of(list)
    ours.cold_s, ours.warm_s, ours.floor_ms = case.cold, case.warm, more.floor_ms
    ours.floor_share = more.floor_ms / ours.ms.median
    local others = setmetatable({}, { array = true })
    for i = 2, #list do others[i - 1] = facts(list[i]) end
    return { config = case.name, title = case.title, precision = case.precision, rows = case.rows,
        accumulate = case.accumulate, threads = case.threads, ours = ours, others = others,
        yardstick = best and best.name, ratio = best and statistics.ratios(best.ms, list[1].ms) or nil,
        load = more.load, rates = more.rates }
end

--- This machine: { cpu, cores, virtual }.
function report.machine()
    local cpu = io.open "/proc/cpuinfo"
    local text = cpu and cpu:read "a" or ""
    if cpu then cpu:close() end
    local _, cores = text:gsub("%f[%w]processor%s*:", "")
    return { cpu = text:match("model name%s*:%s*([^\n]*)") or "unknown", cores = cores,
        virtual = text:find("%f[%w]hypervisor%f[%W]") ~= nil }
end

--- The present commit, as a text.
function report.commit()
    local status, id = host.run { "git", "rev-parse", "--short", "HEAD", quiet = true }
    if status ~= 0 then return "unknown" end
    local _, changes = host.run { "git", "status", "--porcelain", "--untracked-files=no", quiet = true }
    return id:match("%S+") .. (changes ~= "" and " with changes" or "")
end

local function spread(s) return ("%.4g (%.4g to %.4g)"):format(s.median, s.least, s.most) end

local function percent(x) return ("%.0f %%"):format(100 * x) end

local function by_name(row)
    for _, other in ipairs(row.others) do
        if other.name == row.yardstick then return other end
    end
end

--- A table of Markdown.
function report.table(heads, rows)
    local lines = { "| " .. table.concat(heads, " | ") .. " |", "|" .. ("---|"):rep(#heads) }
    for _, cells in ipairs(rows) do lines[#lines + 1] = "| " .. table.concat(cells, " | ") .. " |" end
    return table.concat(lines, "\n")
end

local HEADS = { "configuration", "precision", "A", "threads", "gagen, ms", "best other, ms", "best other", "ratio",
    "MiB: gagen, other", "floor, ms", "of it", "start, s: cold, warm, other", "other load, hypervisor" }

local function cells(row)
    local ours, other = row.ours, by_name(row)
    local function of(value, format) return value and format:format(value) or "NOT RUN" end
    return { ("%s: %s"):format(row.config, row.title), row.precision, tostring(row.accumulate), tostring(row.threads),
        spread(ours.ms), other and spread(other.ms) or "NOT RUN", row.yardstick or "NOT RUN",
        row.ratio and spread(row.ratio) or "NOT RUN",
        ("%.0f, %s"):format(ours.peak_bytes / MIB, of(other and other.peak_bytes / MIB, "%.0f")),
        ("%.4g"):format(ours.floor_ms), percent(ours.floor_share),
        ("%.2f, %.2f, %s"):format(ours.cold_s, ours.warm_s, of(other and other.start_s, "%.2f")),
        ("%s, %s"):format(percent(row.load.foreign), percent(row.load.stolen)) }
end

local function all_sides(rows)
    local list = {}
    for _, row in ipairs(rows) do
        for _, side in ipairs { row.ours, table.unpack(row.others) } do
            list[#list + 1] = { ("%s: %s"):format(row.config, row.title), row.precision, side.name,
                side.ms and spread(side.ms) or "NOT RUN: " .. side.not_run,
                side.peak_bytes and ("%.0f"):format(side.peak_bytes / MIB) or "" }
        end
    end
    return report.table({ "configuration", "precision", "program", "ms", "MiB" }, list)
end

local function rows_of(rows)
    local list = {}
    for i, row in ipairs(rows) do list[i] = cells(row) end
    return report.table(HEADS, list)
end

local function rates_line(rates)
    return ("%.4g GFLOP/s in f32%s, %.3g GB/s of memory"):format(rates.f32 / 1e9,
        rates.bf16 and (", %.4g in bf16"):format(rates.bf16 / 1e9) or "", rates.memory / 1e9)
end

--- The machine and the sources, in words.
function report.origin(all)
    return ("%s, %d cores%s; %s; commit %s; profile %s"):format(all.machine.cpu, all.machine.cores,
        all.machine.virtual and " of a virtual machine" or "", all.date, all.commit, all.profile)
end

local function text_of(all)
    local torch = all.torch and "PyTorch " .. all.torch or "PyTorch: NOT RUN, " .. all.no_torch
    local parts = { "# make bench", ("%s; %d turns of %g s; %s. The machine reaches %s with %d threads "
        .. "(templates/calibrate/rates.c)."):format(report.origin(all), all.turns, all.seconds, torch,
        rates_line(all.rows[1].rates), all.rows[1].threads),
        "Milliseconds are those of an update: medians over turns, with the least and the most. A ratio is that of the "
        .. "best other program to gagen's in one turn. docs/PERFORMANCE.md tells the columns.",
        rows_of(all.rows), "All programs:", all_sides(all.rows) }
    if #all.sweep > 0 then
        parts[#parts + 1] = "Micro-steps, layers and threads:"
        parts[#parts + 1] = rows_of(all.sweep)
    end
    return table.concat(parts, "\n\n") .. "\n"
end

--- Writes training.json and training.md to o.results and prints the latter.
function report.write(o, rows, sweep)
    local all = { machine = report.machine(), date = os.date "!%Y-%m-%d", commit = report.commit(), profile = o.profile,
        turns = o.turns, seconds = o.seconds, torch = o.torch, no_torch = o.no_torch, rows = rows,
        sweep = setmetatable(sweep, { array = true }) }
    assert(host.folder(o.results))
    assert(host.write(o.results, "training.json", host.json(all) .. "\n"))
    local text = text_of(all)
    assert(host.write(o.results, "training.md", text))
    io.write(text)
end

return report
