-- training: `make bench`: the time of an update of our programs and of the same updates in PyTorch and llm.c, in turns.
-- Options are variables of the environment, checked here:
--
--   CONFIGS="a b c d e"       a: MLP, b: ResNet-18, c: GPT of 6 layers, d: GPT-2, e: GPT-2 in llm.c's shape
--   PRECISIONS="f32"          f32, bf16 (PyTorch: autocast)
--   TURNS=5, SECONDS=5        turns, and seconds of measured updates in each; three updates at least
--   THREADS=N, MARCH=NAME     default: all cores, this machine's profile
--   PYTHON=python3            a Python with PyTorch; COMPILE=1: its compiled modes too
--   LLMC=DIR                  a checkout of llm.c with train_gpt2 built and its data, for e in f32
--   SWEEP=1                   also 1, 4, 16, 64 micro-steps, layers and threads, of a and c
--   RESULTS=bench/results     training.json and training.md go there; programs and data to OUT=out/bench
local diag = require "base.diag"
local profile = require "emit.program.profile"
local report = dofile "bench/report.lua"
local sides = dofile "bench/sides.lua"
local statistics = dofile "bench/statistics.lua"

-- sizes: layers, heads, width, vocabulary, context of a GPT.
local CONFIGS = {
    a = { title = "MLP", model = "mlp", rows = 64, accumulate = 4 },
    b = { title = "ResNet-18", model = "resnet18", rows = 32, accumulate = 4 },
    c = { title = "GPT, 6 layers", model = "gpt", sizes = { 6, 6, 384, 256, 256 }, rows = 8, accumulate = 4 },
    d = { title = "GPT-2", model = "gpt", sizes = { 12, 12, 768, 50257, 256 }, rows = 1, accumulate = 4 },
    e = { title = "GPT-2, llm.c's shape", model = "gpt", sizes = { 12, 12, 768, 50257, 64 }, rows = 4,
        accumulate = 1, llmc = true },
}

local function fail(...) diag.fail("bench", string.format(...), {}) end

local function words_of(name, default, allowed)
    local list = {}
    for word in (host.environment(name) or default):gmatch("%S+") do
        if not (" " .. allowed .. " "):find(" " .. word .. " ", 1, true) then
            fail("%s: '%s', expected some of %s", name, word, allowed)
        end
        list[#list + 1] = word
    end
    if #list == 0 then fail("%s is empty, expected some of %s", name, allowed) end
    return list
end

-- A number above 0; kind: "integer" or "float".
local function number_of(name, default, kind)
    local text = host.environment(name) or default
    local n = tonumber(text)
    if kind == "integer" then n = math.tointeger(n) end
    if not n or not (n > 0 and n < 1e6) then fail("%s: '%s', expected a%s number above 0", name, text,
        kind == "integer" and " whole" or "") end
    return n
end

local function flag_of(name)
    local text = host.environment(name) or "0"
    if text ~= "0" and text ~= "1" then fail("%s: '%s', expected 0 or 1", name, text) end
    return text == "1"
end

local function output_of(...)
    local status, text = host.run { quiet = true, ... }
    return status == 0 and text:match("^%s*(.-)%s*$") or nil
end

-- The version of PyTorch of a Python, or nil and why there is none.
local function torch_version(python)
    local version = output_of("sh", "-c", 'exec "$0" -c "import torch; print(torch.__version__)" 2>&1', python)
    return version, not version and ("%s has no PyTorch"):format(python) or nil
end

local function options()
    local o = { configs = words_of("CONFIGS", "a b c d e", "a b c d e"),
        precisions = words_of("PRECISIONS", "f32", "f32 bf16"), turns = number_of("TURNS", "5", "integer"),
        seconds = number_of("SECONDS", "5"), threads = number_of("THREADS", output_of("nproc") or "1", "integer"),
        march = host.environment "MARCH", compile = flag_of "COMPILE", sweep = flag_of "SWEEP",
        python = host.environment "PYTHON" or "python3", llmc = host.environment "LLMC",
        results = host.environment "RESULTS" or "bench/results", gagen = host.environment "GAGEN" or "out/gagen",
        out = host.absolute(assert(host.environment "OUT")) }
    o.profile = o.march and o.march ~= "native" and o.march or profile.native(host.cpu())
    if not profile.get(o.profile) then fail("MARCH: no profile '%s'", o.march) end
    if o.llmc and host.exists(o.llmc .. "/train_gpt2") ~= "file" then
        fail("LLMC: no file %s/train_gpt2, expected a checkout of llm.c after `make train_gpt2`", o.llmc)
    end
    o.data = o.out .. "/data"
    o.torch, o.no_torch = torch_version(o.python)
    return o
end

-- The program that measures the greatest rates of this machine (templates/calibrate/rates.c), compiled once.
local function rates_program(o)
    local program = o.out .. "/rates-" .. o.profile
    local command = { host.environment "CC" or "cc", "-O3", "-pthread", "-o", program, "templates/calibrate/rates.c" }
    local flags = profile.get(o.profile).flags
    local compiled = assert(measured(table.move(flags, 1, #flags, #command + 1, command)))
    if compiled.status ~= 0 then fail("templates/calibrate/rates.c: %s", compiled.err) end
    return program
end

-- Measures the rates once more; the greatest so far stay in `found`.
local function add_rates(o, threads, found)
    for name, rate in assert(measured { o.rates, tostring(threads) }).out:gmatch("(%w+) (%S+)") do
        found[name] = math.max(found[name] or 0, tonumber(rate))
    end
end

-- A configuration as it is measured: its fields, then those of `change`, and the spec of its size.
local function case_of(o, name, precision, change)
    local case = { name = name, precision = precision, threads = o.threads }
    for _, fields in ipairs { CONFIGS[name], change } do
        for key, value in pairs(fields) do case[key] = value end
    end
    local id = ("%s_%s_%d_%d%s"):format(name, precision, case.accumulate, case.threads,
        case.sizes and "_" .. case.sizes[1] or "")
    case.folder, case.spec = o.out .. "/" .. id, ("bench/specs/%s.lua"):format(case.model)
    if case.sizes then
        local line = "local layers, heads, width, vocab, context = " .. table.concat(case.sizes, ", ")
        local text = host.read(case.spec):gsub("local layers,[^\n]*", line, 1)
        assert(host.write(o.out, id .. ".lua", text))
        case.spec = o.out .. "/" .. id .. ".lua"
    end
    assert(host.run { "rm", "-rf", case.folder, case.folder .. ".cache" })
    return case
end

local function ticks() return statistics.ticks(io.lines("/proc/stat")()) end

-- One run of each side in each turn; a side that fails once is left out from then on. Returns the shares of other load
-- and the greatest rates of the machine.
local function take_turns(o, threads, list)
    local load, at = { all = 0, foreign = 0, stolen = 0 }, {}
    local per_second = tonumber(output_of("getconf", "CLK_TCK")) or 100
    for turn = 1, o.turns do
        add_rates(o, threads, at)
        for _, side in ipairs(list) do
            local before = ticks()
            local run, why
            if not side.failed then run, why = side.once() end
            if run then
                statistics.add_load(load, before, ticks(), run.cpu * per_second)
                local ms = statistics.median(run.ms)
                side.ms[turn], side.peak = ms, math.max(side.peak or 0, run.peak)
                side.start = math.min(side.start or math.huge, run.start or math.huge)
                io.stderr:write(("bench: turn %d of %d: %s: %.4g ms\n"):format(turn, o.turns, side.name, ms))
            elseif why then
                side.failed = why
                io.stderr:write(("bench: %s: NOT RUN: %s\n"):format(side.name, why))
            end
        end
    end
    return { foreign = load.foreign / load.all, stolen = load.stolen / load.all }, at
end

-- Milliseconds that the kernels of the program take at least, at the rates of the machine.
local function floor_of(o, case, at)
    local kernels = host.parse_json(host.read(case.folder .. "/plan.json")).kernels
    return statistics.floor(kernels, case.precision == "bf16" and at.bf16 or at.f32, at.memory) / 1e3
end

-- Measures a case; returns its row of the report.
local function measure(o, case)
    io.stderr:write(("bench: %s (%s), %s, A = %d, %d threads\n"):format(case.title, case.name, case.precision,
        case.accumulate, case.threads))
    local ours, why = sides.ours(case, o)
    if not ours then diag.fail("bench", ("%s: %s"):format(case.title, why), { kind = "environment" }) end
    local list = { ours }
    if o.torch then
        local modes = sides.torch(case, o)
        table.move(modes, 1, #modes, 2, list)
    end
    if o.llmc and case.llmc and case.precision == "f32" then list[#list + 1] = sides.llmc(case, o) end
    for _, side in ipairs(list) do side.ms = {} end
    local load, at = take_turns(o, case.threads, list)
    if ours.failed then diag.fail("bench", ("%s: %s"):format(case.title, ours.failed), { kind = "environment" }) end
    return report.row(case, list, { floor_ms = floor_of(o, case, at), load = load, rates = at })
end

-- The cases of a sweep: one row for each change of a configuration.
local function sweep(o, name, precision)
    local rows = {}
    local function add(change) rows[#rows + 1] = measure(o, case_of(o, name, precision, change)) end
    for _, accumulate in ipairs { 1, 4, 16, 64 } do add { accumulate = accumulate } end
    local sizes = CONFIGS[name].sizes
    for _, layers in ipairs(sizes and { 1, 3, 12 } or {}) do
        add { title = ("GPT, %d layer%s"):format(layers, layers > 1 and "s" or ""),
            sizes = table.move(sizes, 2, #sizes, 2, { layers }) }
    end
    local threads = 1
    while threads < o.threads do
        add { threads = threads }
        threads = 2 * threads
    end
    return rows
end

local function main()
    local o = options()
    o.rates = rates_program(o)
    local rows, swept = {}, {}
    for _, name in ipairs(o.configs) do
        for _, precision in ipairs(o.precisions) do
            rows[#rows + 1] = measure(o, case_of(o, name, precision, {}))
            if o.sweep and (name == "a" or name == "c") then
                local more = sweep(o, name, precision)
                table.move(more, 1, #more, #swept + 1, swept)
            end
        end
    end
    report.write(o, rows, swept)
    return 0
end

return main()
