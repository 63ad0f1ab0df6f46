-- The digits MLP against PyTorch: the same initial values, rows and settings must give the same
-- parameters and losses. tests/reference/digits_mlp.py makes the expected figures.
-- Invariant: no Python runs here; a run's settings stand in the script and in RUNS, nowhere else.

local tests = {}

local FIGURES = "tests/reference/digits_mlp/"
local BOUND = { f64 = 1e-10, f32 = 2e-5 }          -- max|a - b| / max|b| of each tensor
local LOSS_BOUND = { f64 = 1e-8, f32 = 2e-6 }      -- the log has nine digits
local FILE_ORDER, SHUFFLED = "shuffle = false", "split = { fold = 1, of = 5, seed = 1 }"

local OPTIMIZERS = {
    sgd = '{ "sgd", lr = 0.1, momentum = 0.9, weight_decay = 5e-4 }',
    nesterov = '{ "sgd", lr = 0.1, momentum = 0.9, weight_decay = 5e-4, nesterov = true }',
    adamw = '{ "adamw", lr = 1e-2, weight_decay = 0.01 }',
}

local RUNS = {                                     -- optimizer, micro-steps per update, clip
    { "sgd", 1, false }, { "sgd", 1, true }, { "sgd", 4, false }, { "sgd", 4, true },
    { "nesterov", 4, true },
    { "adamw", 1, false }, { "adamw", 1, true }, { "adamw", 4, false }, { "adamw", 4, true },
}

local function spec(order, optimizer, accumulate, clip, precision)
    return ([[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, %s }
batch      (16)
accumulate (%d)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  %s
%sprecision  "%s"
train      { updates = 100, seed = 1 }
]]):format(order, accumulate, OPTIMIZERS[optimizer], clip and "clip       (0.5)\n" or "", precision)
end

local function fail(...) error(string.format(...), 0) end

local function check_losses(name, precision, found, expected)
    if #found ~= #expected then fail("%s: %d losses, %d expected", name, #found, #expected) end
    for i, loss in ipairs(found) do
        if not (math.abs(loss - expected[i]) <= LOSS_BOUND[precision] * expected[i]) then
            fail("%s: loss of update %d is %.9g, PyTorch has %.9g", name, i, loss, expected[i])
        end
    end
end

-- Trains with the settings of the figure `name` and compares; `init`: a file, or false for its own. The programs of
-- adamw in f32 are compiled as users compile them.
local function compare(t, name, precision, text, cycles, init)
    local programs, json = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/json.lua")
    local log, losses = t.temp() .. "/log.jsonl", {}
    local options = { "--cycles", cycles, "--threads", 2, "--log", log }
    if init then table.move({ "--init", init }, 1, 2, #options + 1, options) end
    local dump = programs.dump(programs.build("torch_" .. name, text,
        { level = name:find "^adamw_.*_f32$" and "-O3" }), options)
    local worst, where = programs.difference(dump .. "/parameters.safetensors",
        FIGURES .. name .. ".safetensors")
    if not (worst <= BOUND[precision]) then
        fail("%s: %s is off PyTorch's by %.3g of its largest value, at most %.0e expected",
            name, where, worst, BOUND[precision])
    end
    for _, event in ipairs(json.lines(host.read(log))) do
        if event.event == "update" then losses[#losses + 1] = event.loss end
    end
    check_losses(name, precision, losses,
        programs.tensors(FIGURES .. "losses.safetensors")[name].values)
end

local function add(name, is_long, ...)
    local arguments = table.pack(...)
    tests[#tests + 1] = { name, function(t)
        if is_long then t.long() end
        compare(t, name, table.unpack(arguments))
    end }
end

-- With make test any three of optimizer, micro-steps, clip and precision meet in every way: half of all programs.
for _, precision in ipairs { "f64", "f32" } do
    for _, run in ipairs(RUNS) do
        local optimizer, accumulate, clip = table.unpack(run)
        local even = ((optimizer == "adamw") == (accumulate == 1)) == (clip == (precision == "f64"))
        add(("%s_a%d%s_%s"):format(optimizer, accumulate, clip and "_clip" or "", precision), not even, precision, spec(FILE_ORDER, optimizer, accumulate, clip, precision), 20,
            FIGURES .. "init.safetensors")
    end
end

-- Its own initial values, split and order, into the second epoch.
add("shuffled_f64", false, "f64", spec(SHUFFLED, "adamw", 4, false, "f64"), 30, false)

return tests
