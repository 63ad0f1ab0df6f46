-- sides: the programs that are measured in turns. A side is { name, once = function() }: one run, which returns
-- { ms = of each update, peak = bytes, cpu = seconds of the processor, start = seconds to the first update, if known },
-- or nil and the reason.
local statistics = dofile "bench/statistics.lua"

local sides = {}

-- Updates that are measured in a run at least.
local LEAST = 3

-- Variables with which glibc keeps the memory that a program gives back: PyTorch is slower without them.
local MALLOC = { "MALLOC_MMAP_THRESHOLD_=4294967296", "MALLOC_TRIM_THRESHOLD_=4294967296", "MALLOC_TOP_PAD_=268435456" }

local function last_line(text) return text:match("([^\n]*)\n*$") end

-- A command's result, or nil and why it failed in one line; all that it said goes to stderr.
local function finished(result, message)
    if not result then return nil, message end
    if result.status == 0 then return result end
    io.stderr:write(result.out, result.err)
    return nil, ("exit %d: %s"):format(result.status, last_line(result.err ~= "" and result.err or result.out))
end

local function outcome(result, ms) return { ms = ms, peak = result.peak, cpu = result.cpu } end

-- The words of a command behind `env` with these variables.
local function with(variables, command)
    local words = table.move(variables, 1, #variables, 2, { "env" })
    return table.move(command, 1, #command, #words + 1, words)
end

-- Milliseconds of the updates in a program's log, without the first one: its pages are touched for the first time.
local function logged(path)
    local list = {}
    for line in io.lines(path) do
        local event = host.parse_json(line)
        if event.event == "update" then list[#list + 1] = event.ms end
    end
    return list
end

-- The words that generate the program of a case.
local function generate(case, o)
    local words = { o.gagen, case.spec, "-o", case.folder, "--target", case.target or "c",
        "--set", ('precision="%s"'):format(case.precision), "--set", "batch=" .. case.rows,
        "--set", "accumulate=" .. case.accumulate }
    if case.threads then table.move({ "--threads", tostring(case.threads) }, 1, 2, #words + 1, words) end
    if o.march then table.move({ "--march", o.march }, 1, 2, #words + 1, words) end
    return words
end

local RING = { "--quiet", "--overfit", "8", "--cycles" }

-- Seconds from the spec to the end of the first update: with nothing kept, then with all that the first time has left.
-- cache: a folder for the compiled runtime.
local function start_times(case, o, cache)
    local words = generate(case, o)
    table.insert(words, 2, "run")
    table.move({ "--", "--log", case.folder .. ".log" }, 1, 3, #words + 1, words)
    table.move(RING, 1, #RING, #words + 1, words)
    words[#words + 1] = "1"
    local seconds = {}
    for i = 1, 2 do
        host.remove(case.folder .. ".log")
        local result, why = finished(measured(with({ "GAGEN_DATA=" .. o.data, "XDG_CACHE_HOME=" .. cache }, words)))
        if not result then return nil, why end
        seconds[i] = result.seconds
    end
    return { cold = seconds[1], warm = seconds[2], ms = logged(case.folder .. ".log")[1] }
end

--- The program of gagen for a case; sets case.cold and case.warm, seconds to the first update.
function sides.ours(case, o)
    local times, why = start_times(case, o, case.folder .. ".cache")
    if not times then return nil, why end
    case.cold, case.warm = times.cold, times.warm
    local cycles = 1 + math.max(LEAST, math.ceil(o.seconds * 1e3 / times.ms))
    local words = { case.folder .. "/train", "--log", case.folder .. ".log" }
    if case.threads then table.move({ "--threads", tostring(case.threads) }, 1, 2, #words + 1, words) end
    table.move(RING, 1, #RING, #words + 1, words)
    words[#words + 1] = tostring(cycles)
    words = with({ "GAGEN_DATA=" .. o.data, "XDG_CACHE_HOME=" .. case.folder .. ".cache" }, words)
    return { name = "gagen", once = function()
        host.remove(case.folder .. ".log")
        local result, failed = finished(measured(words))
        if not result then return nil, failed end
        local ms = logged(case.folder .. ".log")
        return outcome(result, table.move(ms, 2, #ms, 1, {}))
    end }
end

-- PyTorch in one mode: words for bench/yardstick.py.
local function torch_side(case, o, name, mode)
    local words = { o.python, "bench/yardstick.py", case.model, "--rows", tostring(case.rows), "--accumulate",
        tostring(case.accumulate), "--precision", case.precision, "--seconds",
        tostring(o.seconds), "--least", tostring(LEAST) }
    if case.sizes then table.move({ "--sizes", table.concat(case.sizes, ",") }, 1, 2, #words + 1, words) end
    if case.target == "cuda" then words[#words + 1] = "--cuda" end
    if case.threads then table.move({ "--threads", tostring(case.threads) }, 1, 2, #words + 1, words) end
    table.move(mode, 1, #mode, #words + 1, words)
    local variables = table.move(MALLOC, 1, #MALLOC, 1, {})
    if case.threads then variables[#variables + 1] = "OMP_NUM_THREADS=" .. case.threads end
    return { name = name, once = function()
        local result, why = finished(measured(with(variables, words)))
        if not result then return nil, why end
        local said = host.parse_json(last_line(result.out))
        local run = outcome(result, said.ms)
        run.start = result.seconds - said.measured_s
        return run
    end }
end

--- The modes of PyTorch for a case: each alone unless o.compile is "only", and compiled if o.compile is set.
function sides.torch(case, o)
    local list = {}
    local function add(name, mode)
        if o.compile ~= "only" then list[#list + 1] = torch_side(case, o, "PyTorch " .. name, mode) end
        if not o.compile then return end
        local compiled = table.move(mode, 1, #mode, 2, { "--compile" })
        list[#list + 1] = torch_side(case, o, "PyTorch compiled" .. name:gsub("^eager", ""), compiled)
    end
    add("eager", {})
    if case.model == "resnet18" then add("eager, channels last", { "--channels-last" }) end
    return list
end

--- llm.c's train_gpt2, which has one shape: its updates but the first, for o.seconds and one at least.
function sides.llmc(case, o)
    local limit = tostring(math.max(60, 4 * o.seconds))
    local words = with({ "OMP_NUM_THREADS=" .. case.threads },
        { "timeout", limit, "stdbuf", "-oL", "./train_gpt2" })
    words.cwd = o.llmc
    return { name = "llm.c", once = function()
        local result, why = measured(words)
        if not result then return nil, why end
        local ms = {}
        for step, took in result.out:gmatch("step (%d+):[^\n]-took ([%d.]+) ms") do
            if step ~= "0" then ms[#ms + 1] = tonumber(took) end
        end
        if #ms > 0 then return outcome(result, ms) end
        return nil, ("no update in %s s: %s"):format(limit, last_line(result.err ~= "" and result.err or result.out))
    end }
end

--- One run of each side in each turn; a side that fails once is left out from then on. Sides get `ms`, the median of
--- each turn, peak and start. around: what is called as well, with fields of the functions turn(), begin(), and
--- done(what begin gave, run), each optional.
function sides.take_turns(turns, list, around)
    local function call(name, ...) return around[name] and around[name](...) end
    for _, side in ipairs(list) do side.ms = {} end
    for turn = 1, turns do
        call "turn"
        for _, side in ipairs(list) do
            local before, run, why = call "begin", nil, nil
            if not side.failed then run, why = side.once() end
            if run then
                call("done", before, run)
                local ms = statistics.median(run.ms)
                side.ms[turn], side.peak = ms, math.max(side.peak or 0, run.peak)
                side.start = math.min(side.start or math.huge, run.start or math.huge)
                io.stderr:write(("bench: turn %d of %d: %s: %.4g ms\n"):format(turn, turns, side.name, ms))
            elseif why then
                side.failed = why
                io.stderr:write(("bench: %s: NOT RUN: %s\n"):format(side.name, why))
            end
        end
    end
end

return sides
