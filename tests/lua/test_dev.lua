-- Extensions found by folder: ops, optimizers, schedules, passes and targets are files added to a copy of the scripts
-- for --dev, and no other file is edited. Programs train with them; their results are compared with the formulas.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local OP = [[
-- cube: for a test.

pointwise "cube" {
    doc = "x^3",
    arity = 1, value = function(_, x) return x * x * x end,
    grad = function(_, dy, x) return dy * 3 * x * x end,
    sample = "cube {}",
}
]]

local OPTIMIZER = [[
-- half_sgd: for a test.

optimizer "half_sgd" {
    doc = "w -= lr g / 2",
    fields = { { name = "lr", type = "num", required = true, min = 0, doc = "learning rate" } },
    scope = "element", zero = true,
    state = function() return {} end,
    update = function(_, w, g, _, lr) return { { "w", w - 0.5 * lr * g } } end,
}
]]

local SCHEDULE = [[
-- harmonic: for a test.

schedule "harmonic" {
    doc = "base / (t + 1)",
    fields = {},
    factor = function(_, t, _, base) return base / (t + 1) end,
}
]]

local METRIC = [[
-- half_rmse: for a test.

metric "half_rmse" {
    doc = "half of rmse", better = "lower",
    value = function(s) return { { "mean", s.squares / s.count }, { "half_rmse", 0.5 * sqrt(s.mean) } } end,
}
]]

local SPEC = [[
data       { "csv", train = "rows.csv", target = "last", shuffle = false }
batch      (2)
model      { linear "fc" { 1, bias = false }, cube {} }
init       { { "fc.weight", value = 0.5 } }
loss       "mse"
optimizer  { "half_sgd", lr = 0.1 }
schedule   "harmonic"
precision  "f64"
train      { updates = 3 }
]]

local ROWS = { { 0.5, 1 }, { -0.25, 0.5 }, { 1, 0.75 }, { 0.75, -0.5 } }

-- The weight after three updates of the mean of (x^3 w^3 - y)^2 over two rows.
local function expected()
    local w = 0.5
    for t = 0, 2 do
        local d = 0
        for i = 1, 2 do
            local x, y = ROWS[t % 2 * 2 + i][1], ROWS[t % 2 * 2 + i][2]
            d = d + (((w * x) ^ 3 - y) * 2) * 3 * (w * x) ^ 2 * x / 2
        end
        w = w - 0.5 * 0.1 / (t + 1) * d
    end
    return w
end

-- A folder with dev, a copy of the scripts, and data, the rows.
local function prepare(t)
    local folder = t.root .. "/" .. t.temp()
    local copied = t.run { "sh", "-c", ('mkdir -p "$1/dev" "$1/data" && cp -r gen templates runtime specs "$1/dev"'),
        "sh", folder }
    t.equal(copied.status, 0, copied.err)
    local rows = {}
    for i, row in ipairs(ROWS) do rows[i] = ("%.2f,%.2f\n"):format(row[1], row[2]) end
    t.write(folder .. "/data/rows.csv", table.concat(rows))
    return folder
end

-- Copies files of tests/dropped into the scripts: { [from] = to }, in order.
local function drop(t, folder, list)
    for _, pair in ipairs(list) do
        t.write(folder .. "/dev/" .. pair[2], assert(host.read(t.root .. "/tests/dropped/" .. pair[1])))
    end
end

local function gagen(t, folder, ...)
    return t.load("tests/lua/programs.lua")(t).gagen { "--dev", folder .. "/dev", ... }
end

-- Builds the spec and trains with it; returns the folder of the dump. env: of the run.
local function trained(t, folder, name, env, ...)
    local out, dump = folder .. "/out_" .. name, folder .. "/dump_" .. name
    local made = gagen(t, folder, folder .. "/dropped.lua", "-o", out, ...)
    t.equal(made.status, 0, made.err)
    t.load("tests/lua/programs.lua")(t).compile(out)
    local run = t.run { out .. "/train", "--quiet", "--dump", dump, "--checkpoint", folder .. "/checkpoints_" .. name,
        env = env }
    t.equal(run.status, 0, run.err)
    return dump
end

add("an op, an optimizer, a schedule and a metric are one file each", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = prepare(t)
    t.write(folder .. "/dev/gen/catalog/ops/cube.lua", OP)
    t.write(folder .. "/dev/gen/catalog/optim/half_sgd.lua", OPTIMIZER)
    t.write(folder .. "/dev/gen/catalog/schedule/harmonic.lua", SCHEDULE)
    t.write(folder .. "/dev/gen/catalog/metric/half_rmse.lua", METRIC)
    t.write(folder .. "/dropped.lua", SPEC:gsub("target =", 'eval = "rows.csv", %0')
        .. 'eval { every = 3, metrics = { "half_rmse", "rmse" } }\n')
    local plain = programs.gagen { "check", folder .. "/dropped.lua" }
    t.equal(plain.status, 1, "without --dev the words are unknown")
    local dump = trained(t, folder, "c")
    local weight = programs.tensors(dump .. "/parameters.safetensors")["fc.weight"].values[1]
    t.near(weight, expected(), 1e-14)
    local squares = 0
    for _, row in ipairs(ROWS) do squares = squares + ((weight * row[1]) ^ 3 - row[2]) ^ 2 / #ROWS end
    local log = assert(host.read(folder .. "/out_c/runs/001/log.jsonl"))
    t.near(tonumber(t.match(log, '"half_rmse":([^,]+),"rmse"')), 0.5 * math.sqrt(squares), 1e-14)
end)

-- === an optimizer with states of any name ========================================================

-- An optimizer with four states of these names. With scope "tensor" its step is divided by a sum over each tensor.
local function with_states(names, scope)
    local a, b, c, d = table.unpack(names)
    return ([[
-- four_averages: for a test.

optimizer "four_averages" {
    doc = "four averages of the gradient",
    fields = { { name = "lr", type = "num", required = true, min = 0, doc = "learning rate" } },
    scope = "SCOPE", zero = true,
    state = function() return { "A", "B", "C", "D" } end,
    sums = SUMS,
    update = function(_, w, g, s, lr, t)
        return {
            { "A", 0.5 * s.A + 0.5 * g }, { "B", 0.75 * s.B + 0.25 * var "A" },
            { "C", s.C + var "B" * var "B" }, { "D", max(s.D, sqrt(var "C")) },
            { "w", w - lr * RATIO * (var "A" + var "B") / (var "D" + t) },
        }
    end,
}
]]):gsub("%u+", { A = a, B = b, C = c, D = d, SCOPE = scope, RATIO = scope == "tensor" and 'var "ratio"' or "1",
        SUMS = scope == "element" and "nil" or [[function(_, w, g, s)
        return { statements = {}, sums = { { "squares_of_step", g * s.]] .. a .. [[ + w * w } },
            scales = { { "ratio", 1 / (1 + var "squares_of_step" / var "n") } } }
    end]] })
end

local STATES = [[
data       { "csv", train = "rows.csv", target = "last", shuffle = false }
batch      (2)
accumulate (2)
model      { linear "fc" { 3 }, tanh {}, linear "out" { 1 } }
init       { { "*.weight", value = 0.5 } }
loss       "mse"
optimizer  { "four_averages", lr = 0.1 }
precision  "f64"
train      { updates = 3 }
]]

add("states of an optimizer may have names of a kernel's variables", function(t)
    local programs, environment = devices.open(t)
    local folder = prepare(t)
    t.write(folder .. "/dropped.lua", STATES)
    local function parameters(name, scope, states, target)
        t.write(folder .. "/dev/gen/catalog/optim/four_averages.lua", with_states(states, scope))
        local dump = trained(t, folder, scope .. name, target == "cuda" and environment() or nil, "--target", target)
        return programs.tensors(dump .. "/parameters.safetensors")
    end
    local odd = { "n", "x", "count", "data" }
    for _, scope in ipairs { "element", "tensor" } do
        local plain = parameters("_plain", scope, { "m", "m_slow", "v", "v_max" }, "c")
        local c, cuda = parameters("_c", scope, odd, "c"), parameters("_cuda", scope, odd, "cuda")
        for name, tensor in pairs(plain) do
            for i, value in ipairs(tensor.values) do
                t.equal(c[name].values[i], value, scope .. ", c: " .. name)
                t.near(cuda[name].values[i], value, 1e-14, scope .. ", cuda: " .. name)
            end
        end
    end
end)

-- === an op with kernels of its own ===============================================================

local CUMSUM = {
    { "cumsum/op.lua", "gen/catalog/ops/cumsum.lua" }, { "cumsum/layer.lua", "gen/catalog/layers/cumsum.lua" },
    { "cumsum/cumsum.c", "templates/c/cumsum.c" }, { "cumsum/cumsum.cu", "templates/cuda/cumsum.cu" },
}

local SUMS = [[
data       { "csv", train = "rows.csv", target = "last", shuffle = false }
batch      (2)
model      { linear "fc" { 3, bias = false }, cumsum {}, linear "out" { 1, bias = false } }
init       { { "fc.weight", value = 0.5 }, { "out.weight", value = 0.25 } }
loss       "mse"
optimizer  { "sgd", lr = 0.1 }
precision  "f64"
train      { updates = 1 }
]]

-- The weights of fc after an update: x_c = w_c x, y = v (x_1 + (x_1 + x_2) + (x_1 + x_2 + x_3)); w_c is in 4 - c sums.
local function expected_sums()
    local list = { 0.5, 0.5, 0.5 }
    for i = 1, 2 do
        local x, y = ROWS[i][1], ROWS[i][2]
        local d = 2 * (0.25 * 0.5 * x * 6 - y) / 2
        for c = 1, 3 do list[c] = list[c] - 0.1 * d * 0.25 * (4 - c) * x end
    end
    return list
end

add("an op with kernels of its own is its entry and a template for each target", function(t)
    local programs, environment = devices.open(t)
    local folder = prepare(t)
    drop(t, folder, CUMSUM)
    t.write(folder .. "/dropped.lua", SUMS)
    for _, target in ipairs { "c", "cuda" } do
        local dump = trained(t, folder, target, target == "cuda" and environment() or nil, "--target", target)
        local found = programs.tensors(dump .. "/parameters.safetensors")["fc.weight"].values
        for c, value in ipairs(expected_sums()) do t.near(found[c], value, 1e-14) end
    end
end)

add("an op without a block or a launch for a target is refused by name", function(t)
    local folder = prepare(t)
    drop(t, folder, { CUMSUM[1], CUMSUM[2], CUMSUM[3] })
    t.write(folder .. "/dropped.lua", SUMS)
    local c = gagen(t, folder, "check", folder .. "/dropped.lua")
    t.equal(c.status, 0, c.err)
    local cuda = gagen(t, folder, "check", folder .. "/dropped.lua", "--target", "cuda")
    t.equal(cuda.status, 2)
    t.match(cuda.err, "op 'cumsum' has no template block 'cumsum' for target 'cuda': expected it in "
        .. "templates/cuda/cumsum%.cu")
    drop(t, folder, CUMSUM)
    local entry = folder .. "/dev/gen/catalog/ops/cumsum.lua"
    t.write(entry, (assert(host.read(entry)):gsub("    launch = [^\n]*\n", "")))
    cuda = gagen(t, folder, "check", folder .. "/dropped.lua", "--target", "cuda")
    t.equal(cuda.status, 2)
    t.match(cuda.err, "op 'cumsum' has no launch for target 'cuda': expected it in gen/emit/targets/cuda or in "
        .. "the op's entry")
end)

-- === a pass, a target ============================================================================

add("a pass is one file that names its predecessor", function(t)
    local folder = prepare(t)
    drop(t, folder, { { "pass.lua", "gen/passes/count_nodes.lua" } })
    local traced = gagen(t, folder, "check", "specs/digits_mlp.lua", "--trace", folder .. "/trace")
    t.equal(traced.status, 0, traced.err)
    local names = table.concat(host.list(folder .. "/trace"), " ")
    t.match(names, "%d+%-fusion%.txt %d+%-count_nodes%.txt")
    local without = gagen(t, folder, "check", "specs/digits_mlp.lua", "--without", "count_nodes")
    t.equal(without.status, 0, without.err)
end)

local TRACED = [[
name       "traced"
data       { "csv", train = "rows.csv", target = "last" }
batch      (1)
accumulate (3)
model      { times(2) "h" { linear "fc" { 1 } } }
loss       "mse"
optimizer  { "sgd", lr = 0.1 }
parallel   { "ddp", ranks = 1 }
target     "trace"
train      { updates = 1 }
]]

-- The lines of a trace from the one that is `title` to the next that is no deeper.
local function section(trace, title, which)
    local list, depth, seen = {}, nil, 0
    for line in trace:gmatch("[^\n]+") do
        local pad, rest = line:match("^( *)(.*)$")
        if depth and #pad <= depth then depth = nil end
        if depth and seen == which then list[#list + 1] = rest end
        if rest == title then
            depth, seen = #pad, seen + 1
        end
    end
    return list
end

add("a target is a folder: a target that prints the calls of a cycle", function(t)
    local folder = prepare(t)
    assert(host.folder(folder .. "/dev/gen/emit/targets/trace"))
    drop(t, folder, { { "trace/target.lua", "gen/emit/targets/trace/target.lua" } })
    t.write(folder .. "/traced.lua", TRACED)
    local made = gagen(t, folder, folder .. "/traced.lua", "-o", folder .. "/out")
    t.equal(made.status, 0, made.err)
    local trace = assert(host.read(folder .. "/out/trace.txt"))
    t.match(trace, "^cycle of 3\n  forward\n")
    t.equal(#section(trace, "forward", 3), #section(trace, "forward", 1))
    local first, last = section(trace, "backward first", 1), section(trace, "backward last", 1)
    t.match(table.concat(first, "\n"), "2 times:\n.*writes d_h_fc_weight")
    t.match(table.concat(last, "\n"), "2 times:\n.*adds to d_h_fc_weight")
    t.equal(table.concat(first, "\n"):find("start collective", 1, true), nil, "only the last micro-step sums")
    t.match(table.concat(last, "\n"), "start collective 1")
    t.equal(table.concat(section(trace, "boundary", 1), "\n"), table.concat({
        "wait for collective 1: all_reduce of 64 elements", "all workers wait",
        "call the handler", "all workers wait",
        "own parts:", "gradient_partials writes partials", "all workers wait",
        "sum loss, weight and rows over the ranks", "all workers wait",
        "decide writes step", "all workers wait",
        "update_all of h.%d.fc.weight .. h.%d.fc.bias writes w",
        "2 times:", "pack_h_fc_weight_in_out" }, "\n"))
    local chosen = gagen(t, folder, "check", "specs/digits_mlp.lua", "--target", "trace")
    t.equal(chosen.status, 0, chosen.err)
    local unknown = gagen(t, folder, "check", "specs/digits_mlp.lua", "--target", "tracing")
    t.match(unknown.err, "'tracing', expected one of c, cuda, trace")
end)

add("a target gets the boundary as a body with the iteration of a rule for matrices", function(t)
    local folder = prepare(t)
    assert(host.folder(folder .. "/dev/gen/emit/targets/trace"))
    drop(t, folder, { { "trace/target.lua", "gen/emit/targets/trace/target.lua" } })
    t.write(folder .. "/traced.lua", (TRACED:gsub('"sgd"', '"muon"'):gsub("model[^\n]*",
        'model { linear "fc1" { 8 }, linear "fc2" { 1, bias = false } }')))
    local made = gagen(t, folder, folder .. "/traced.lua", "-o", folder .. "/out")
    t.equal(made.status, 0, made.err)
    local trace = assert(host.read(folder .. "/out/trace.txt"))
    t.equal(table.concat(section(trace, "orthogonalize_matrices_1x8 writes x_fc2_weight, y_fc2_weight, gram_fc2_weight, "
        .. "square_fc2_weight", 1), "\n"), table.concat({ "5 times:",
        "all workers wait", "gram_1x8 writes gram", "all workers wait", "square_1 writes square",
        "all workers wait", "polynomial_matrices writes square", "all workers wait", "apply_1x8 writes y" }, "\n"))
end)

add("a target that violates the interface is refused with the name of the field", function(t)
    local folder = prepare(t)
    local path = folder .. "/dev/gen/emit/targets/trace"
    assert(host.folder(path))
    local text = assert(host.read(t.root .. "/tests/dropped/trace/target.lua"))
    for _, case in ipairs {
        { "library = false,", 'library = "no",', "target 'trace': library is a string, expected a boolean" },
        { "runs = false,", "runs = false, colour = 1,", "target 'trace' has an unknown field 'colour'" },
        { "return ordered.copy%(c_target, {", "return ({", "target 'trace' has no " },
    } do
        t.write(path .. "/target.lua", (text:gsub(case[1], case[2], 1)))
        local result = gagen(t, folder, "check", "specs/digits_mlp.lua", "--target", "trace")
        t.equal(result.status, 2)
        t.match(result.err, case[3])
    end
end)

add("a folder that is not a checkout is refused", function(t)
    local result = t.run { t.root .. "/" .. t.gagen, "--dev", t.temp(), "version" }
    t.equal(result.status, 1)
    t.equal(result.err, "gagen: --dev: no gen/gagen.lua is in that folder, expected a checkout of gagen\n")
end)

return tests
