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
local cases = dofile "bench/cases.lua"
local configurations = dofile "bench/configurations.lua"
local diag = require "base.diag"
local options = dofile "bench/options.lua"
local report = dofile "bench/report.lua"
local sides = dofile "bench/sides.lua"
local statistics = dofile "bench/statistics.lua"

-- The version of PyTorch of a Python, or nil and why there is none.
local function torch_version(python)
    local version = options.output("sh", "-c", 'exec "$0" -c "import torch; print(torch.__version__)" 2>&1', python)
    return version, not version and ("%s has no PyTorch"):format(python) or nil
end

local function read_options()
    local o = options.common()
    o.configs = options.words("CONFIGS", "a b c d e", "a b c d e")
    o.precisions = options.words("PRECISIONS", "f32", "f32 bf16")
    o.turns, o.seconds = options.number("TURNS", "5", "integer"), options.number("SECONDS", "5")
    o.threads = options.number("THREADS", options.output("nproc") or "1", "integer")
    o.compile, o.sweep = options.flag "COMPILE", options.flag "SWEEP"
    o.python, o.llmc = host.environment "PYTHON" or "python3", host.environment "LLMC"
    if o.llmc and host.exists(o.llmc .. "/train_gpt2") ~= "file" then
        options.fail("LLMC: no file %s/train_gpt2, expected a checkout of llm.c after `make train_gpt2`", o.llmc)
    end
    o.data = o.out .. "/data"
    o.torch, o.no_torch = torch_version(o.python)
    return o
end

-- A configuration as it is measured: its fields, then those of `change`, and the spec of its size.
local function case_of(o, name, precision, change)
    local case = { name = name, precision = precision, threads = o.threads }
    for _, fields in ipairs { configurations[name], change } do
        for key, value in pairs(fields) do case[key] = value end
    end
    local id = ("%s_%s_%d_%d%s"):format(name, precision, case.accumulate, case.threads,
        case.sizes and "_" .. case.sizes[1] or "")
    return cases.of(o, id, case)
end

local function ticks() return statistics.ticks(io.lines("/proc/stat")()) end

-- Takes turns; returns the shares of other load and the greatest rates of the machine.
local function take_turns(o, threads, list)
    local load, at = { all = 0, foreign = 0, stolen = 0 }, {}
    local per_second = tonumber(options.output("getconf", "CLK_TCK")) or 100
    sides.take_turns(o.turns, list, { turn = function() options.add_rates(o.rates, threads, at) end, begin = ticks,
        done = function(before, run) statistics.add_load(load, before, ticks(), run.cpu * per_second) end })
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
    local load, at = take_turns(o, case.threads, list)
    if ours.failed then diag.fail("bench", ("%s: %s"):format(case.title, ours.failed), { kind = "environment" }) end
    return report.row(case, list, { floor_ms = floor_of(o, case, at), load = load, rates = at })
end

-- The cases of a sweep: one row for each change of a configuration.
local function sweep(o, name, precision)
    local rows = {}
    local function add(change) rows[#rows + 1] = measure(o, case_of(o, name, precision, change)) end
    for _, accumulate in ipairs { 1, 4, 16, 64 } do add { accumulate = accumulate } end
    local sizes = configurations[name].sizes
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
    local o = read_options()
    o.rates = options.rates_program(o)
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
