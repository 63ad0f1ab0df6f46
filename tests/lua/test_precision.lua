-- precision "bf16" and "f16": values are rounded only where they are stored; results equal f32 within the effect of
-- those roundings, on both targets, for any number of threads.
local devices = dofile "tests/lua/devices.lua"
local profile = require "emit.program.profile"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- Bits behind the first one, and the exponent of the least number that has all of them. A rounding changes a
-- value by at most the part U of it.
local FORMATS = { bf16 = { fraction = 7, least = -126 }, f16 = { fraction = 10, least = -14 } }
local HALVES = { "bf16", "f16" }
for _, name in ipairs(HALVES) do FORMATS[name].U = 2.0 ^ -(FORMATS[name].fraction + 1) end

local function with(text, precision) return text .. ('precision "%s"\n'):format(precision) end

-- x rounded to the nearest number of the format, ties to even, by arithmetic instead of bits.
local function rounded(format, x)
    if x == 0 then return x end
    local exponent = format.least
    while math.abs(x) >= 2.0 ^ (exponent + 1) do exponent = exponent + 1 end
    local unit = 2.0 ^ (exponent - format.fraction)
    local n = math.abs(x) / unit
    local whole = math.floor(n)
    local over = n - whole
    if over > 0.5 or over == 0.5 and whole % 2 == 1 then whole = whole + 1 end
    return (x < 0 and -whole or whole) * unit
end

local function f32(x) return (string.unpack("<f", string.pack("<f", x))) end

-- === programs ====================================================================================

local MLP = [[
data       { "csv", train = "tiny.csv", target = "last", shuffle = false }
batch      (6)
accumulate (2)
model      { linear "fc1" { 20 }, relu {}, linear "fc2" { 12, bias = false }, tanh {}, linear "fc3" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
]]

local GPT = [[
data       { "text", train = "half.txt", context = 12, split = { eval = 2 } }
batch      (3)
accumulate (2)
model(function(batch)
    local x = positions "wpe" { 16 } (embedding "wte" { 24, 16 } (batch.input))
    x = times(3) "h" {
        residual { layernorm "ln_1" {}, linear "attn" { 48 }, attend { heads = 2, causal = true },
                   linear "proj" { 16 } },
        residual { rmsnorm "ln_2" {}, linear "fc" { 40 }, gelu {}, scale { 0.7 }, tanh {},
                   linear "out" { 16 } },
    } (x)
    return unembed { "wte" } (layernorm "ln_f" {} (x))
end)
init       { { "*", normal = 0.3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 90, seed = 3 }
eval       { every = 4, metrics = { "loss", "accuracy" } }
]]

local CONV = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (8)
accumulate (2)
model      { reshape { 1, 8, 8 }, conv2d "c1" { 6, 3, padding = 1, bias = false }, batchnorm "bn" {}, gelu {},
             avgpool2d { 2 },
             conv2d "c2" { 8, 3, padding = 1 }, tanh {}, avgpool2d { "global" }, flatten {}, linear "fc" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
]]

local function letters(t, programs)
    local bytes = {}
    for i = 1, 400 do bytes[i] = string.char(97 + (i * i + i // 7) % 23) end
    t.write(programs.folder() .. "/data/half.txt", table.concat(bytes))
end

-- The roundings on the longest way from the batch through the model and back to a gradient.
local CASES = { { name = "mlp", text = MLP, depth = 12 }, { name = "gpt", text = GPT, depth = 90 },
    { name = "conv", text = CONV, depth = 30 } }

local function open(t)
    local programs, environment = devices.open(t)
    letters(t, programs)
    return programs, environment
end

-- The program of a case, one for all tests; that of the MLP in bf16 with its probe.
local function build(programs, name, text, precision, target)
    return programs.build(("half_%s_%s_%s"):format(name, precision, target),
        with(text, precision) .. ('target "%s"\n'):format(target),
        { probe = name == "mlp" and precision == "bf16" and target == "c" })
end

-- === an MLP computed here ========================================================================

-- An MLP in Lua: sums in double, values rounded where they are stored. The gradient of the
-- loss is `scale` times too large; the gradients that are dumped are not.
local function by_hand(programs, start, format, scale)
    local w = programs.tensors(start)
    local function q(x) return rounded(format, f32(x)) end
    local function each(list, f)
        local out = {}
        for i, x in ipairs(list) do out[i] = f(x, i) end
        return out
    end
    -- y(i, n) = sum over k of x(i, k) weight(n, k)
    local function product(x, rows, weight, n, bias)
        local k, y = #x // rows, {}
        for i = 0, rows - 1 do
            for o = 0, n - 1 do
                local sum = bias and bias[o + 1] or 0.0
                for c = 1, k do sum = sum + x[i * k + c] * weight[o * k + c] end
                y[#y + 1] = sum
            end
        end
        return y
    end
    local function turned(x, rows)
        local n, y = #x // rows, {}
        for c = 1, n do for i = 0, rows - 1 do y[#y + 1] = x[i * n + c] end end
        return y
    end
    local gradients = {}
    local function contribute(name, d)
        gradients[name] = gradients[name] or each(d, function() return 0.0 end)
        for i, x in ipairs(d) do gradients[name][i] = gradients[name][i] + x end
    end
    local lines = {}
    for line in host.read(programs.folder() .. "/data/tiny.csv"):gmatch("[^\n]+") do lines[#lines + 1] = line end
    local B, SEED = 6, f32(scale / 12)
    local view = {}
    for _, name in ipairs { "fc1", "fc2", "fc3" } do view[name] = each(w[name .. ".weight"].values, q) end
    local function back(name, d, x, n)
        contribute(name .. ".weight", product(turned(d, B), n, turned(x, B), #x // B))
        if w[name .. ".bias"] then contribute(name .. ".bias", product(turned(d, B), n, each(turned(d, B), function()
            return 1.0 end), 1)) end
        return each(product(d, B, turned(view[name], n), #x // B), q)
    end
    for micro = 0, 1 do
        local x, class = {}, {}
        for i = 1, B do
            local values = {}
            for v in lines[micro * B + i]:gmatch("[^,]+") do values[#values + 1] = tonumber(v) end
            class[i] = math.tointeger(table.remove(values))
            for _, v in ipairs(values) do x[#x + 1] = q(f32(v)) end
        end
        local y1 = each(product(x, B, view.fc1, 20, w["fc1.bias"].values), q)
        local r1 = each(y1, function(v) return math.max(v, 0.0) end)
        local y2 = each(product(r1, B, view.fc2, 12), q)
        local t2 = each(y2, function(v) return q((math.exp(2 * v) - 1) / (math.exp(2 * v) + 1)) end)
        local logits = each(product(t2, B, view.fc3, 3, w["fc3.bias"].values), q)
        local d = {}
        for i = 0, B - 1 do
            local sum = 0.0
            for c = 1, 3 do sum = sum + math.exp(logits[i * 3 + c]) end
            for c = 1, 3 do
                d[#d + 1] = q(SEED * (math.exp(logits[i * 3 + c]) / sum - (class[i + 1] == c - 1 and 1 or 0)))
            end
        end
        d = back("fc3", d, t2, 3)
        d = each(d, function(v, i) return q(v * (1 - t2[i] * t2[i])) end)
        d = back("fc2", d, r1, 12)
        d = each(d, function(v, i) return r1[i] <= 0 and 0.0 or v end)
        back("fc1", d, x, 20)
    end
    for name, sums in next, gradients do gradients[name] = each(sums, function(x) return x / scale end) end
    return gradients
end

-- Compares the gradient of a program of MLP with the definition.
local function check_by_hand(t, programs, p, half, env)
    local start = t.temp() .. "/start.safetensors"
    local folder = programs.dump(p, { "--cycles", 1, "--save-init", start, env = env })
    local found = programs.tensors(folder .. "/gradients.safetensors")
    for name, expected in next, by_hand(programs, start, FORMATS[half], half == "f16" and 65536 or 1) do
        local size = 0
        for _, x in ipairs(expected) do size = math.max(size, math.abs(x)) end
        for i, x in ipairs(expected) do t.near(found[name].values[i], x, 1e-6 * size) end
        t.equal(found[name].dtype, "F32")
    end
end

for _, half in ipairs(HALVES) do
    add(half .. ": the gradient of an MLP is that of the definition, worked out beside it", function(t)
        local programs, environment = open(t)
        for _, target in ipairs { "c", "cuda" } do
            check_by_hand(t, programs, build(programs, "mlp", MLP, half, target), half,
                target == "cuda" and environment() or nil)
        end
    end)
end

-- The instructions for bf16 in plain C (tests/matrix) give the bits of the processor's.
for _, march in ipairs { "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "sapphirerapids" } do
    add("bf16 on " .. march .. ": the gradient of an MLP is that of the definition", function(t)
        local marches = t.load("tests/lua/marches.lua")(t)
        local programs, name = open(t), "half_mlp_" .. march:gsub("%-", "_")
        local function checked(more, level)
            local p = programs.build(name .. more, with(MLP, "bf16"),
                { options = { "--march", march }, level = level })
            check_by_hand(t, programs, p, "bf16")
            return p
        end
        local p = checked("", marches.level_of(march))
        if not profile.get(march).matrix or not marches.runs(march) then return end
        local plain = checked("_plain", t.quick .. " " .. marches.plain(march))
        programs.identical(programs.dump(p, { "--cycles", 3 }), programs.dump(plain, { "--cycles", 3 }),
            { "parameters", "gradients" })
    end)
end

-- Both with make test-all, else the first or the second.
local function either(t, is_first, first, second)
    return t.all and { first, second } or { is_first and first or second }
end

-- === against f32 =================================================================================

for _, case in ipairs(CASES) do
    add(case.name .. ": gradients are those of f32 within the roundings on their way, and not the same", function(t)
        local programs, environment = open(t)
        local function gradients(precision, target)
            local p = build(programs, case.name, case.text, precision, target)
            return programs.dump(p, { "--cycles", 1, env = target == "cuda" and environment() or nil })
                .. "/gradients.safetensors"
        end
        local exact = gradients("f32", "c")
        for _, half in ipairs(HALVES) do
            for _, target in ipairs(either(t, half == "bf16", "c", "cuda")) do
                local worst, where = programs.difference(gradients(half, target), exact)
                local bound = case.depth * FORMATS[half].U
                if not (worst <= bound and worst > FORMATS[half].U / 8) then
                    error(("%s %s: %s differs by %.3g, expected up to %.3g"):format(half, target, where, worst, bound))
                end
            end
        end
    end)
end

-- Two runs may diverge where a rounded value changes a comparison; so steps are small and rows few. With make test the
-- parts are on the two targets in turn.
local PARTS = 4

for part = 1, PARTS do
    add(("every op of the catalog in bf16 on both targets, part %d of %d"):format(part, PARTS), function(t)
        local programs, environment = open(t)
        local samples = t.load("tests/numeric/samples.lua")
        local list = samples.models(part, PARTS)
        local text = [[
data      { "tensors", train = "tiny.safetensors" }
batch     (6)
accumulate (2)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.05, momentum = 0.9 }
train     { updates = 8, seed = 3 }
model]] .. samples.case(list).model .. "\n"
        local function run(precision, target)
            local p = programs.build(("half_ops%d_%s_%s"):format(part, precision, target),
                with(text, precision) .. ('target "%s"\n'):format(target))
            return programs.dump(p, { "--cycles", 1,
                env = target == "cuda" and environment(devices.checked(1)) or nil })
        end
        local FILES, exact, dumps = { "parameters", "gradients" }, run("f32", "c"), {}
        for i, target in ipairs { "c", "cuda" } do
            if t.all or part % 2 == i % 2 then
                local found = run("bf16", target)
                programs.close(found, exact, (target == "c" and 16 or 18) * FORMATS.bf16.U, FILES)
                assert(programs.difference(found .. "/gradients.safetensors", exact .. "/gradients.safetensors")
                    > FORMATS.bf16.U / 4)
                dumps[#dumps + 1] = found
            end
        end
        if t.all then programs.close(dumps[2], dumps[1], 2 * FORMATS.bf16.U, FILES) end
    end)
end

-- === what must not change a bit ==================================================================

add("threads, fusion, recomputation and packed weights change no bit", function(t)
    local programs = open(t)
    for _, half in ipairs(HALVES) do
        local text = with(GPT, half)
        local p = build(programs, "gpt", GPT, half, "c")
        local function short() return { "--cycles", 5, "--threads", 1 } end
        local expected = programs.dump(p, short())
        programs.identical(programs.dump(p, { "--cycles", 5, "--threads", 3 }), expected, { "parameters", "state" })
        local bf16 = half == "bf16"                -- with make test each type has one of two
        for _, values in ipairs(either(t, bf16, "h_*", "*ln_2*")) do
            local other = programs.build("half_gpt_other", text .. ('memory { recompute = { %q } }\n'):format(values))
            programs.identical(programs.dump(other, short()), expected, { "parameters", "state" })
        end
        for _, pass in ipairs(either(t, bf16, "fusion", "layout")) do
            local other = programs.build("half_gpt_without", text, { options = { "--without", pass } })
            programs.identical(programs.dump(other, short()), expected, { "parameters", "state" })
        end
    end
end)

-- The sum over a plane of the bias's gradient is some -250,000 with the first scale of f16, the gradients of its places
-- are below 6,000.
local PLANES = [[
data       { "tensors", train = "planes.safetensors", target = "y", shuffle = false }
batch      (2)
model(function(batch) return conv2d "c" { 1, 3, padding = 1 } (batch.x) end)
loss       "mse"
optimizer  { "sgd", lr = 0.01 }
train      { updates = 2, seed = 3 }
]]

add("parts of the gradient of a convolution's bias are f32", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local x, y = {}, {}
    for i = 1, 4 * 64 do x[i], y[i] = math.sin(i * i), 4 + math.cos(i) end
    t.write(programs.folder() .. "/data/planes.safetensors", t.load("tests/numeric/rows.lua").file {
        { "x", "F32", { 4, 1, 8, 8 }, x }, { "y", "F32", { 4, 1, 8, 8 }, y } })
    local function gradients(precision)
        local p = programs.build("planes_" .. precision, with(PLANES, precision))
        return programs.dump(p, { "--cycles", 1 })
    end
    local full = gradients "f32"
    for _, half in ipairs(HALVES) do
        programs.close(gradients(half), full, 4 * FORMATS[half].U, { "gradients" }, programs.distance)
    end
end)

add("a resumed run ends with the bits of the uninterrupted run", function(t)
    local programs = open(t)
    for _, half in ipairs(HALVES) do
        local p = build(programs, "gpt", GPT, half, "c")
        local expected = programs.dump(p, { "--cycles", 5 })
        local stopped = programs.train(p, { "--stop-micro", 5, status = 75 })
        local resumed = programs.dump(p, { "--cycles", 5, "--checkpoint", stopped.checkpoint, "--resume", "latest" })
        programs.identical(resumed, expected, { "parameters", "state" })
    end
end)

-- The same rows in one micro-step and in four: only the order of f32 sums differs.
add("A = 1 and A = 4 give one gradient", function(t)
    local programs = open(t)
    local function gradients(rows, a)
        local text = MLP:gsub("%(2%)", ("(%d)"):format(a)):gsub("%(6%)", ("(%d)"):format(rows))
        local p = programs.build("half_exact" .. a, with(text, "bf16"))
        return programs.dump(p, { "--cycles", 1 }) .. "/gradients.safetensors"
    end
    local worst, where = programs.difference(gradients(8, 1), gradients(2, 4))
    if not (worst <= 1e-6) then error(("%s differs by %.3g"):format(where, worst)) end
end)

-- Activations are the same bits; a weight's gradient adds up runs of rows.
add("chunked logits give the same gradient on both targets", function(t)
    local programs, environment = open(t)
    local whole = programs.dump(build(programs, "gpt", GPT, "bf16", "c"), { "--cycles", 1 })
    for _, target in ipairs { "c", "cuda" } do
        local p = programs.build("half_chunked_" .. target, with(GPT, "bf16") .. ('target "%s"\n'):format(target)
            .. 'memory { logits = "chunked", logits_rows = 10 }\n')
        local found = programs.dump(p, { "--cycles", 1, env = target == "cuda" and environment() or nil })
        programs.close(found, whole, target == "c" and 1e-6 or 8 * FORMATS.bf16.U, { "gradients" })
    end
end)

-- === what is stored ==============================================================================

-- The bytes of the arenas of a plan, by name.
local function arenas(plan)
    local found = {}
    for _, arena in ipairs(plan.arenas) do found[arena.name] = arena.bytes end
    return found
end

add("activations and packed weights take about half the bytes, everything else the same", function(t)
    local programs = open(t)
    local text = GPT:gsub("context = 12", "context = 64"):gsub("16", "64"):gsub("%(3%)\n", "(1)\n")
    local function plan(precision)
        local p = { name = "half_plan", spec = programs.folder() .. "/half_plan_" .. precision .. ".lua" }
        t.write(p.spec, with(text, precision))
        return programs.plan(p)
    end
    local full, half = plan "f32", plan "bf16"
    t.equal({ full.precision, half.precision }, { "f32", "bf16" })
    local a, b = arenas(full), arenas(half)
    if not (b.activations < 0.62 * a.activations) then
        error(("activations: %d bytes of %d"):format(b.activations, a.activations))
    end
    for _, name in ipairs { "parameters", "gradients", "state_m", "state_v" } do t.equal(b[name], a[name], name) end
    local types = {}
    for _, tensor in ipairs(half.tensors) do types[tensor.name] = tensor end
    t.equal({ types.h_fc_y.dtype, types.h_ln_1_mean.dtype, types.loss.dtype }, { "bf16", "f32", "f32" })
    t.equal(types.h_fc_y.bytes, 64 * 40 * 2)
end)

add("a probe sees 16-bit values where the plan says so, and f32 elsewhere", function(t)
    local programs = open(t)
    local p = build(programs, "mlp", MLP, "bf16", "c")
    local probe = { name = p.name, spec = p.spec, train = p.probe, folder = p.folder }
    local folder = programs.dump(probe, { "--cycles", 1, "--check-finite", "--profile" })
    local halves, others = 0, 0
    local values = programs.tensors(folder .. "/micro-1.safetensors")
    for _, tensor in ipairs(programs.plan(p).tensors) do
        local finer = false
        for _, x in ipairs(values[tensor.name] and values[tensor.name].values or {}) do
            finer = finer or rounded(FORMATS.bf16, x) ~= x
        end
        if tensor.dtype == "bf16" then
            t.equal(finer, false, tensor.name)
            halves = halves + (values[tensor.name] and 1 or 0)
        elseif finer then
            others = others + 1
        end
    end
    assert(halves >= 8 and others >= 2, ("%d tensors of 16 bits, %d others"):format(halves, others))
    programs.identical(programs.dump(p, { "--cycles", 1 }), folder, { "parameters", "gradients" })
end)

add("force_outputs_fp32: the model's output is not rounded", function(t)
    local programs = open(t)
    local function coarse(p)
        local probe = { name = p.name, spec = p.spec, train = p.probe, folder = p.folder }
        local folder = programs.dump(probe, { "--cycles", 1 })
        local all = true
        for _, x in ipairs(programs.tensors(folder .. "/micro-0.safetensors").fc3_y.values) do
            all = all and rounded(FORMATS.bf16, x) == x
        end
        return all
    end
    t.equal(coarse(build(programs, "mlp", MLP, "bf16", "c")), true)
    t.equal(coarse(programs.build("half_output", with(MLP, "bf16") .. "parallel { force_outputs_fp32 = true }\n",
        { probe = true })), false)
    local carried = GPT:gsub("return unembed.-\n", "return x\n")
    t.write(programs.folder() .. "/half_carried.lua",
        with(carried:gsub("{ 24, 16 }", "{ 24, 24 }"):gsub("16", "24"), "bf16")
            .. "parallel { force_outputs_fp32 = true }\n")
    local result = programs.gagen { programs.folder() .. "/half_carried.lua", "-o", t.temp() .. "/out" }
    t.equal(result.status ~= 0, true)
    t.contains(result.err, "force_outputs_fp32")
end)

add("tokens sampled in 16 bits are the same on both targets", function(t)
    local programs, environment = open(t)
    local said = {}
    for _, target in ipairs { "c", "cuda" } do
        local p = build(programs, "gpt", GPT, "bf16", target)
        local env = target == "cuda" and environment() or { "GAGEN_TIMEOUT=300" }
        local start = t.temp() .. "/start.safetensors"
        programs.train(p, { "--cycles", 1, "--save-init", start, env = env })
        local result = programs.train(p, { "--sample", 30, "--temperature", 0, "--init", start, env = env })
        said[#said + 1] = result.out:match("([a-w]+)\n$")
    end
    assert(#said[1] == 31, "written: " .. tostring(said[1]))
    t.equal(said[2], said[1])
end)

-- === training ====================================================================================

add("the digits and letters are learned as well as in f32", function(t)
    local programs = open(t)
    local digits = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
accumulate (4)
model      { linear "fc1" { 64 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
schedule   "cosine"
train      { epochs = 6, seed = 1 }
eval       { every = "epoch", metrics = { "loss", "accuracy" } }
]]
    -- The loss of the last evaluation, or the mean of the last 20 updates.
    local function last(name, text, precision)
        local p = build(programs, name, text, precision, "c")
        local found, updates = nil, {}
        for _, event in ipairs(programs.events(p, { "--threads", 1 })) do
            if event.event == "eval" then found = event.loss end
            if event.event == "update" then updates[#updates + 1] = event.loss end
        end
        if name == "digits" then return found end
        local sum = 0
        for i = #updates - 19, #updates do sum = sum + updates[i] end
        return sum / 20
    end
    for _, case in ipairs { { "digits", digits, 0.25 }, { "gpt", GPT, 2.4 } } do
        local full = last(case[1], case[2], "f32")
        assert(full < case[3], ("%s: %g: not learned"):format(case[1], full))
        for _, half in ipairs(either(t, case[2] == digits, "f16", "bf16")) do
            t.near(last(case[1], case[2], half), full, 0.02 * math.max(full, 0.3))
        end
    end
end)

return tests
