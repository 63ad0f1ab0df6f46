-- gpu: `make bench-gpu`: tokens, sequences or images per second of our programs on this machine's GPU, and of PyTorch,
-- eager and compiled, on the same work in turns; then the time of each kernel beside the predicted one, its floor, and
-- the time of cuBLASLt for products. Without a GPU it prints NOT RUN and exits with 3.
-- Options are variables of the environment, checked here:
--
--   CONFIGS="gpt2 bert resnet18 char_gpt mlp"    PRECISIONS="bf16 f32"
--   TURNS=3, SECONDS=5        turns, and seconds of measured updates in each; three updates at least
--   PYTHON=python3            a Python whose PyTorch has CUDA
--   MODES="eager compiled"    modes of PyTorch
--   RESULTS=bench/results     gpu.json and gpu.md go to a folder there, of the GPU's name
--   OUT=out/bench-gpu         programs and data
--   SMALL=1                   small models, as a test has them on the device library of tests/device: no record, so
--                             RESULTS must be another folder
local cases = dofile "bench/cases.lua"
local diag = require "base.diag"
local gpu_kernels = dofile "bench/gpu_kernels.lua"
local gpu_report = dofile "bench/gpu_report.lua"
local options = dofile "bench/options.lua"
local rates = require "emit.targets.cuda.rates"
local sides = dofile "bench/sides.lua"

-- The measured specs: count is what a row has of the unit. small: what differs with SMALL.
local CONFIGS = {
    gpt2 = { title = "GPT-2 124M, 1024 tokens", model = "gpt", sizes = { 12, 12, 768, 50257, 1024 }, rows = 32,
        accumulate = 4, unit = "tokens", count = 1024,
        small = { sizes = { 1, 2, 32, 65, 32 }, rows = 2, accumulate = 2, count = 32 } },
    bert = { title = "BERT-base, 128 tokens", model = "bert", sizes = { 12, 12, 768, 30522, 128 }, rows = 64,
        accumulate = 4, unit = "sequences", count = 1,
        small = { sizes = { 1, 2, 32, 30522, 128 }, rows = 2, accumulate = 2 } },
    resnet18 = { title = "ResNet-18, 32 x 32 pixels", model = "resnet18", sizes = { 64, 500 }, rows = 500,
        accumulate = 4, unit = "images", count = 1, small = { sizes = { 8, 2 }, rows = 2, accumulate = 2 } },
    char_gpt = { title = "GPT of letters", model = "gpt", sizes = { 4, 4, 128, 65, 64 }, rows = 12, accumulate = 1,
        unit = "tokens", count = 64, small = { sizes = { 1, 2, 32, 65, 32 }, rows = 2, count = 32 } },
    mlp = { title = "MLP", model = "mlp", rows = 64, accumulate = 4, unit = "images", count = 1, small = {} },
}

-- The first GPU: { name, driver }; nil if there is none.
local function gpu()
    local said = options.output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    local name, driver = (said or ""):match "^([^,\n]+), *([^\n]+)"
    return name and { name = name, driver = driver } or nil
end

-- The version of a PyTorch with CUDA, or nil and why there is none.
local function torch_version(python)
    local version = options.output("sh", "-c", [[exec "$0" -c "import torch
assert torch.cuda.is_available(), 'no device'
print(torch.__version__)" 2>&1]], python)
    return version, not version and ("%s has no PyTorch with CUDA"):format(python) or nil
end

local function read_options()
    local o = options.common()
    o.small = options.flag "SMALL"
    o.configs = options.words("CONFIGS", "gpt2 bert resnet18 char_gpt mlp", "gpt2 bert resnet18 char_gpt mlp")
    o.precisions = options.words("PRECISIONS", "bf16 f32", "bf16 f32")
    o.turns, o.seconds = options.number("TURNS", "3", "integer"), options.number("SECONDS", "5")
    o.python, o.data = host.environment "PYTHON" or "python3", o.out .. "/data"
    local modes = table.concat(options.words("MODES", "eager compiled", "eager compiled"), " ")
    o.compile = modes == "compiled" and "only" or modes:find "compiled" ~= nil
    o.cublaslt, o.cycles = assert(host.environment "CUBLASLT"), o.small and 1 or 3
    if o.small and host.absolute(o.results) == host.absolute "bench/results" then
        options.fail("SMALL: times of small models are no record, expected RESULTS to be another folder")
    end
    return o
end

local function case_of(o, name, precision)
    local config = CONFIGS[name]
    local case = { name = name, precision = precision, target = "cuda" }
    for _, fields in ipairs { config, o.small and config.small or {} } do
        for key, value in pairs(fields) do case[key] = value end
    end
    if o.small then case.title = case.title .. ", made small" end
    return cases.of(o, name .. "_" .. precision, case)
end

-- Measures a case; returns its row of the report.
local function measure(o, name, precision)
    local case = case_of(o, name, precision)
    io.stderr:write(("bench: %s, %s\n"):format(case.title, precision))
    local ours, why = sides.ours(case, o)
    if not ours then diag.fail("bench", ("%s: %s"):format(case.title, why), { kind = "environment" }) end
    local list = table.move(o.torch and sides.torch(case, o) or {}, 1, 16, 2, { ours })
    sides.take_turns(o.turns, list, {})
    if ours.failed then diag.fail("bench", ("%s: %s"):format(case.title, ours.failed), { kind = "environment" }) end
    local made = assert(measured { "make", "-s", "-C", case.folder, "train-probe" })
    if made.status ~= 0 then diag.fail("bench", made.err, { kind = "environment" }) end
    local kernels, missing = gpu_kernels.rows(o, case, rates.peaks(o.gpu.name))
    return gpu_report.row(case, list, kernels, missing)
end

local function main()
    local device = gpu()
    if not device then
        print "NOT RUN: bench-gpu: no NVIDIA GPU here (nvidia-smi lists none)"
        return 3
    end
    local o, rows, text = read_options(), {}, nil
    o.gpu = device
    o.torch, o.no_torch = torch_version(o.python)
    assert(host.run { host.environment "HOST", "bench/data.lua", o.data } == 0)
    for _, name in ipairs(o.configs) do
        for _, precision in ipairs(o.precisions) do
            rows[#rows + 1] = measure(o, name, precision)
            text = gpu_report.write(o, rows)    -- kept if the next one fails
        end
    end
    io.write(text)
    return 0
end

return main()
