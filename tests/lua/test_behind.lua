-- Pointwise nodes in the kernels of products (passes/fusion.lua): the same bits as with `--without fusion`, in each
-- type, on blocks, strips and plain vectors, with rests of tiles, with any number of threads, and on a device.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- Behind products stand: an activation whose gradient reads its input; one whose gradient reads its result; a residual;
-- chains of ops; gradients of activations. Sides are no multiples of 32.
local SPEC = [[
data       { "csv", train = "behind.csv", target = "last", shuffle = false }
batch      (37)
accumulate (2)
model {
    linear "in" { 70 }, gelu {},
    residual { linear "up" { 101, bias = false }, tanh {}, linear "down" { 70 } },
    residual { linear "gate" { 70 }, silu {}, scale { 0.7 } },
    linear "last" { 75 }, relu {}, linear "out" { 3 },
}
init       { { "*", normal = 0.2 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
precision  "%s"
]]

-- The program of a type for a profile, of SPEC or of another model of a name; more: options of gagen.
local function build(t, precision, march, more, model, spec)
    local programs, level = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/marches.lua")(t).level_of(march)
    programs.write_sines("behind.csv", 37 * 4, 40)
    local name = ("behind_%s%s_%s%s"):format(model and model .. "_" or "", precision, march:gsub("%-", "_"),
        more and "_without" or "")
    return programs.build(name, (spec or SPEC):format(precision), { level = level,
        options = table.move(more or {}, 1, #(more or {}), 3, { "--march", march }) }), programs
end

-- Whether a program has the bits of the other one, with any number of threads.
local function same_bits(programs, p, plain)
    local expected = programs.dump(plain, { "--cycles", 2, "--threads", 1 })
    for _, threads in ipairs { 1, 3 } do
        programs.identical(programs.dump(p, { "--cycles", 2, "--threads", threads }), expected,
            { "parameters", "gradients" })
    end
end

for _, case in ipairs { { "f32", "generic" }, { "f32", "sapphirerapids" }, { "bf16", "sapphirerapids" },
    { "bf16", "x86-64-v3" }, { "f64", "x86-64-v3" }, { "bf16", "x86-64-v4-bf16" }, { "f16", "x86-64-v3" } } do
    local precision, march = case[1], case[2]
    add(("%s on %s: the bits are those without fusion"):format(precision, march), function(t)
        if march == "x86-64-v4-bf16" or precision == "f16" then t.long() end
        local p, programs = build(t, precision, march)
        local plain = build(t, precision, march, { "--without", "fusion" })
        same_bits(programs, p, plain)
        -- functions of one number of bf16 are tables where a processor reads them fast; the other program computes them
        local looks_up = precision == "bf16" and march == "sapphirerapids"
        local kernels = host.read(p.folder .. "/kernels.c")
        for _, text in ipairs { "matrix_look_up(behind + from, c + from, N,", "gelu_of[BF16_NUMBERS + 1];",
            "matrix_look_up_sums(looked_1, with_2 + from, N," } do
            t.equal(kernels:find(text, 1, true) ~= nil, looks_up, text)
        end
        t.equal(host.read(plain.folder .. "/kernels.c"):find "_of%[" ~= nil, false)
    end)
end

-- === the CUDA target =============================================================================

-- Nodes behind products read a table by the place of a row, one element for each row, and columns as rows.
local VIEWS = [[
data       { "csv", train = "behind.csv", target = "last", shuffle = false }
batch      (37)
accumulate (2)
model (function(batch)
    local x = linear "in" { 40 } (reshape { 5, 8 } (batch.input))
    local y = positions "places" { 5 } (linear "up" { 48 } (tanh {} (x)))
    y = linear "gated" { 40 } (y) * linear "gate" { 1 } (x)
    y = linear "turned" { 40 } (relu {} (y)) + reshape { 5, 40 } (transpose { 1, 3, 2 } (y))
    return linear "out" { 3 } (flatten {} (y))
end)
init       { { "*", normal = 0.2 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
precision  "%s"
]]

-- Behind convolutions, gradients of their inputs and batchnorm stand: activations, one whose gradient reads its input,
-- gradients of activations, a residual; channels that are whole octets, and others; a stride.
local PLANES = [[
data       { "csv", train = "behind.csv", target = "last", shuffle = false }
batch      (5)
accumulate (2)
model (function(batch)
    local x = tanh {} (reshape { 32, 8, 6 } (linear "in" { 32 * 48 } (batch.input)))
    x = tanh {} (conv2d "a" { 32, 3, padding = 1 } (x))
    x = relu {} (batchnorm "n" {} (conv2d "b" { 32, 3, padding = 1, bias = false } (x)))
    x = x + gelu {} (batchnorm "m" {} (conv2d "c" { 32, 1, bias = false } (x)))
    x = gelu {} (conv2d "stride" { 40, 3, stride = 2, padding = 1 } (x))
    x = relu {} (batchnorm "odd" {} (conv2d "d" { 35, 2, bias = false } (x)))
    return linear "out" { 3 } (flatten {} (x))
end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
precision  "%s"
]]

-- Models on the device library: SPEC with odd widths, or with widths that are whole vectors of eight; VIEWS; PLANES.
local MODELS = { planes = PLANES, odd = SPEC, whole = SPEC:gsub("70", "72"):gsub("75", "80"):gsub("101", "104"), views = VIEWS }

-- Behind the gradient of a norm stand that of the residual around it and those of activations, in rows of a warp (40)
-- and of a block (1304; 1100, no whole vectors).
MODELS.norms = [[
data       { "csv", train = "behind.csv", target = "last", shuffle = false }
batch      (37)
accumulate (2)
model      { linear "first" { 40 }, residual { layernorm "a" {}, linear "in" { 40 } }, gelu {}, layernorm "b" {},
             linear "up" { 1304 }, tanh {}, rmsnorm "c" {}, linear "between" { 40 }, linear "odd" { 1100 }, silu {},
             layernorm "d" {}, linear "out" { 3 } }
init       { { "*", normal = 0.2 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
precision  "%s"
]]

-- Roundings between two ops of a kernel, of which some make a difference, and a constant that is no number of bf16;
-- planes of 48 elements, and of 300, more than a row that is rounded as a whole.
MODELS.between = [[
data       { "csv", train = "behind.csv", target = "last", shuffle = false }
batch      (5)
accumulate (2)
model (function(batch)
    local x = reshape { 4, 20, 15 } (linear "in" { 1200 } (batch.input))
    x = relu {} (x + batchnorm "n" {} (conv2d "a" { 4, 3, padding = 1, bias = false } (x)))
    x = reshape { 4, 8, 6 } (linear "between" { 192 } (flatten {} (x)))
    x = relu {} (batchnorm "m" {} (conv2d "b" { 4, 3, padding = 1, bias = false } (x)) + relu(x * 0.7 - 0.1) * x)
    x = flatten {} (where(lt(x, 0.2), 0.1, x))
    return linear "out" { 3 } (leaky_relu {} (tanh(x) * 0.3 - x))
end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
precision  "%s"
]]

-- In bf16 a kernel rounds the results of such nodes in rows, without the roundings that make no difference then.
for _, case in ipairs { { "bf16", "sapphirerapids", "planes" }, { "bf16", "sapphirerapids", "norms" },
    { "bf16", "x86-64-v3", "planes" }, { "bf16", "generic", "norms" }, { "f32", "x86-64-v3", "planes" },
    { "f16", "x86-64-v3", "planes" }, { "bf16", "sapphirerapids", "between" }, { "bf16", "x86-64-v3", "between" },
    { "f16", "x86-64-v3", "between" } } do
    local precision, march, model = case[1], case[2], case[3]
    add(("%s on %s, model %s: the bits are those without fusion"):format(precision, march, model), function(t)
        local p, programs = build(t, precision, march, nil, model, MODELS[model])
        local plain = build(t, precision, march, { "--without", "fusion" }, model, MODELS[model])
        same_bits(programs, p, plain)
    end)
end

add("a result of bf16 is rounded once, in a row or where it is computed", function(t)
    local p = build(t, "bf16", "x86-64-v3", nil, "planes", MODELS.planes)
    local kernels = host.read(p.folder .. "/kernels.c")
    local function kernel(name) return assert(kernels:match("\nstatic void " .. name .. "[%d_x]+%(.-\n}\n"), name) end
    local relu = kernel "batchnorm_relu"
    t.contains(relu, "row[k] = (value < 0.0f ? 0.0f : value);\n")
    t.contains(relu, "narrow_row(y + (size_t)p * S + first, row, n);")
    t.contains(kernel "add_relu_dx", "row[k] = (x3 <= 0.0f ? 0.0f : x1 + x2);\n")
    t.contains(kernel "batchnorm_gelu_add", "y[at] = bf16_narrow(value);\n")   -- the backward pass reads it too
    t.contains(kernel "linear_dx_relu_dx", "c[at] = bf16_cut((x_1 <= 0.0f ? 0.0f : bf16_rounded(value)));\n")
    local between = build(t, "bf16", "x86-64-v3", nil, "between", MODELS.between)
    t.contains(host.read(between.folder .. "/kernels.c"), "out[i] = bf16_narrow((x1 == 0.0f ? x2 : 0.1f));\n")
    local same = build(t, "f16", "x86-64-v3", nil, "planes", MODELS.planes)
    t.contains(host.read(same.folder .. "/kernels.c"), "f16_narrow((f16_rounded(value) < 0.0f ? 0.0f")
end)

-- A gradient is there already when a norm and a batchnorm add theirs: both ops read what another one reads, too.
MODELS.added = [[
data       { "csv", train = "behind.csv", target = "last", shuffle = false }
batch      (37)
model (function(batch)
    local x = linear "in" { 60 } (batch.input)
    local y = reshape { 5, 12 } (linear "between" { 60 } (rmsnorm "r" {} (x) + tanh {} (x)))
    y = reshape { 5, 12 } (linear "again" { 60 } (flatten {} (layernorm "n" {} (y) + sin {} (y))))
    return linear "out" { 3 } (flatten {} (batchnorm "b" { rows = 37 } (y) + sigmoid {} (y)))
end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
precision  "%s"
]]

add("norms add their gradient in bf16 to the one that is there", function(t)
    local exact, programs = build(t, "f32", "x86-64-v3", nil, "added", MODELS.added)
    local p = build(t, "bf16", "x86-64-v3", nil, "added", MODELS.added)
    local text = host.read(p.folder .. "/step.c")
    for _, op in ipairs { "batchnorm_dx", "norm_dx" } do t.match(text, "    " .. op .. "_[%dx]+%([^;]*%strue%);") end
    local function dump(program) return programs.dump(program, { "--cycles", 1 }) end
    programs.close(dump(p), dump(exact), 0.05, { "gradients" }, programs.distance)
end)

-- Behind products stand dropouts, alone and with a residual behind them, on tensor cores and by threads (10 columns), of
-- whole vectors of eight and of others; each row of the batch has five of a product, or one. One is read twice.
MODELS.drops = [[
data       { "csv", train = "behind.csv", target = "last", shuffle = false }
batch      (37)
accumulate (2)
model (function(batch)
    local x = reshape { 5, 40 } (dropout(0.3) (linear "in" { 200 } (batch.input)))
    x = x + dropout(0.2) (linear "again" { 40, store = "in_out" } (tanh {} (x)))
    x = dropout(0.25) (linear "odd" { 75 } (x))
    local y = dropout(0.4) (linear "few" { 10 } (x))
    return linear "out" { 3 } (flatten {} (tanh {} (y) * y))
end)
init       { { "*", normal = 0.2 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
precision  "%s"
]]

local function build_on_device(t, programs, precision, model, without)
    programs.write_sines("behind.csv", 37 * 4, 40)
    return programs.build(("behind_cuda_%s_%s%s"):format(precision, model, without and "_without" or ""),
        MODELS[model]:format(precision) .. 'target "cuda"\n', { options = without and { "--without", "fusion" } })
end

-- On tensor cores (16 bits, from 32 rows, columns and terms on) and by threads (f32, f64, fewer). Each model is checked
-- in one type.
for _, case in ipairs { { "bf16", "whole" }, { "bf16", "odd", light = true }, { "bf16", "views", light = true },
    { "f16", "whole", long = true }, { "f16", "odd", light = true }, { "f32", "odd" }, { "f32", "views" },
    { "f64", "odd", long = true }, { "bf16", "planes" }, { "f64", "planes", light = true },
    { "bf16", "norms", light = true }, { "f32", "norms" }, { "bf16", "drops" }, { "f64", "drops", long = true } } do
    local precision, model = case[1], case[2]
    add(("%s on a device, model %s: the bits are those without fusion"):format(precision, model), function(t)
        if case.long then t.long() end
        local programs, environment = devices.open(t)
        local p = build_on_device(t, programs, precision, model)
        local plain = build_on_device(t, programs, precision, model, true)
        local cycles = (t.all or model == "drops") and 2 or 1
        local expected = programs.dump(plain, { "--cycles", cycles, env = environment() })
        for seed = 1, t.all and 3 or 1 do
            local settings = case.light and devices.light(t, seed) or devices.checked(seed)
            programs.identical(programs.dump(p, { "--cycles", cycles, env = environment(settings) }), expected,
                { "parameters", "gradients" })
        end
    end)
end

add("a kernel on tensor cores reads and writes eight neighbours at once, both results where both are read", function(t)
    local programs = devices.open(t)
    local p = build_on_device(t, programs, "bf16", "whole")
    local function kernel(name) return devices.kernel_of(p, name) end
    local gelu, residual = kernel "linear_gelu", kernel "linear_add"
    t.contains(gelu, "ga_put8<ALL>(c + first, sums, size.N - column);")
    t.contains(gelu, "ga_put8<ALL>(behind + first, sums, size.N - column);")
    t.contains(residual, ", ALL = true;")
    t.contains(residual, "ga_add8<ALL>(sums, with_1 + first, size.N - column);")
    t.equal(residual:find("behind", 1, true), nil)
    t.contains(kernel "linear_dx_tanh_dx", "ga_read<FEW>(with_1 + first)")
    p = build_on_device(t, programs, "bf16", "views")
    t.contains(kernel "linear_positions", "= ga_read<FEW>(with_1 + (int)first % 240);")
    t.contains(kernel "linear_mul", "= with_1[(int)first / 40];")
    t.contains(kernel "linear_transpose_add", "with_1[(int)i / 200 * 200")
end)

add("a product drops elements of its result in its kernel", function(t)
    local programs = devices.open(t)
    local found = {}
    for _, kernel in ipairs(programs.plan(build_on_device(t, programs, "bf16", "drops")).kernels) do
        if kernel.role == "forward" then found[#found + 1] = kernel.fn end
    end
    t.equal(table.concat(found, " ", 1, 6), "bf16_37x40 linear_dropout_37x200x40 tanh_37x5x40 "
        .. "linear_in_out_dropout_add_185x40x40 linear_dropout_185x75x40 linear_dropout_185x10x75")
end)

add("convolutions and batchnorm have what stands behind them in their kernels", function(t)
    local programs = devices.open(t)
    local p = build_on_device(t, programs, "bf16", "planes")
    local function kernel(name) return devices.kernel_of(p, name) end
    t.contains(kernel "conv2d_tanh", "ga_put8<true>(y + first, sums, 8);")
    t.contains(kernel "conv2d_gelu", "ga_put8<true>(behind + first, sums, 8);")
    t.contains(kernel "conv2d_dx_tanh_dx", "of_with_1 = conv_read_ahead<FEW>(there, weight,")
    t.contains(kernel "batchnorm_relu", "ga_write(y + first, to);")
    t.contains(kernel "batchnorm_gelu_add", "ga_write(behind + first, to);")
end)

add("the gradient of a norm has what stands behind it in its kernel", function(t)
    local programs = devices.open(t)
    local text = host.read(build_on_device(t, programs, "bf16", "norms").folder .. "/kernels.cu")
    local count = select(2, text:gsub("\nGA_KERNEL%b() norm_dx_[%l_]+_%d", ""))
    t.equal(count, 3)           -- besides the one that adds a value or none
    t.contains(text:match " norm_dx_37_rows_of_40%(.-\n}\n", "(of_with_1, with_1 + (ga_int64)i * C);")
end)

-- Between the product and its pointwise reader stands a loop whose layers read the result.
local CLOSURE = [[
data       { "csv", train = "behind.csv", target = "last", shuffle = false }
batch      (37)
accumulate (2)
model (function(batch)
    local y = linear "a" { 24 } (batch.input)
    local h = times(2) "h" (function(v) return v + tanh {} (linear "in" { 24 } (v)) * y end) (linear "b" { 24 } (batch.input))
    return linear "out" { 3 } (h + relu {} (y))
end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
]]

add("a result that a loop reads is written before the loop", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    programs.write_sines("behind.csv", 37 * 4, 40)
    local function dump(name, options)
        return programs.dump(programs.build(name, CLOSURE, { options = options }), { "--cycles", 2 })
    end
    programs.identical(dump("behind_closure"), dump("behind_closure_without", { "--without", "fusion" }),
        { "parameters", "gradients" })
end)

return tests
