-- Sums over the micro-steps that lose nothing, precision { accum = "kahan" }, or that are kept in 16 bits, "bf16".
-- Where each micro-step's gradient is a row of the data, exactly, the gradient of a cycle must be the sum of the rows
-- as f64 has it, rounded once; in 16 bits, with each sum rounded.
local devices, tests = dofile "tests/lua/devices.lua", {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local ROWS = 4096

local function f32(x) return (string.unpack("<f", string.pack("<f", x))) end

-- The values summed in each column: a 1 and then values too small for f32 to add to it; values of very different size
-- that cancel; random values; and random values that grow, so that sums are smaller than the next value.
local COLUMNS = {
    function(k) return k == 0 and 1 or 2 ^ -25 end,
    function(k) return (k % 4 == 0 and 2 ^ 20 or k % 4 == 2 and -2 ^ 20 or 0) + 2 ^ -10 * (k % 3) end,
    function(k) return math.sin(k * k) + 0.37 end,
    function(k) return math.sin(k) * 1.005 ^ k * 1e-3 + k * 1e-7 end,
}

-- The file of rows, and the sums of the values, read as f32, of its first `count` rows.
local function write_rows(t, programs, count)
    local lines, sums = {}, { 0, 0, 0, 0 }
    for k = 0, ROWS - 1 do
        local row = {}
        for c, value in ipairs(COLUMNS) do
            row[c] = ("%.9g"):format(f32(value(k)))
            if k < (count or ROWS) then sums[c] = sums[c] + f32(tonumber(row[c])) end
        end
        row[5] = tostring(k % 2)
        lines[k + 1] = table.concat(row, ",")
    end
    t.write(programs.folder() .. "/data/sums.csv", table.concat(lines, "\n") .. "\n")
    return sums
end

-- The derivative of the loss by each weight is the sum of its column. a: a count of micro-steps, or text.
local function spec(precision, a, more)
    return ([[
data       { "csv", train = "sums.csv", target = "last", shuffle = false }
batch      (1)
accumulate %s
model      { linear "w" { 1, bias = false } }
loss       { function(out, batch) return sum(out) end, weight = "sum" }
optimizer  { "sgd", lr = 1e-3 }
precision  %s
train      { updates = 1 }
]]):format(math.type(a) and ("(%d)"):format(a) or a, precision) .. (more or "")
end

local function gradient(programs, p, o)
    return programs.tensors(programs.dump(p, o or {}) .. "/gradients.safetensors")["w.weight"].values
end

-- The distance of neighbouring f32 numbers at x.
local function ulp(x) return 2.0 ^ (math.floor(math.log(math.abs(x), 2)) - 23) end

for _, target in ipairs { "c", "cuda" } do
    add("4,096 micro-steps: the sum of f64, rounded once: " .. target, function(t)
        local programs, environment = devices.open(t)
        local a = target == "c" and ROWS or 1024
        local sums = write_rows(t, programs, a)
        local function found(name, precision)
            local p = programs.build(name .. target, spec(precision, a, ("target     %q\n"):format(target)))
            return gradient(programs, p, { "--threads", 1, target == "cuda" and "--no-graph" or nil, env = environment() })
        end
        local kahan, plain = found("sums_kahan_", '{ accum = "kahan" }'), found("sums_plain_", '"f32"')
        local worst = 0
        for c, sum in ipairs(sums) do
            if math.abs(kahan[c] - sum) > 0.5001 * ulp(sum) then
                error(("column %d: %.12g, expected %.12g"):format(c, kahan[c], sum))
            end
            worst = math.max(worst, math.abs(plain[c] - sum) / ulp(sum))
        end
        assert(worst > 100, "plain sums lose nothing here: " .. worst)
        t.equal(plain[1], 1.0)
    end)
end

-- A spec that is only to be read, as programs.plan takes it.
local function described(t, programs, name, text)
    local p = { name = name, spec = ("%s/%s.lua"):format(programs.folder(), name) }
    t.write(p.spec, text)
    return p
end

add("a cycle of one micro-step, and a program of such cycles", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs)
    local p = described(t, programs, "sums_one", spec('{ accum = "kahan" }', 1))
    local plain = described(t, programs, "sums_one_plain", spec('"f32"', 1))
    local made = programs.gagen { "show", p.spec, "kernels.c" }
    t.contains(made.out, "linear")
    assert(not made.out:find("accumulate", 1, true), "nothing is to be added")
    t.equal(programs.plan(p).totals.bytes, programs.plan(plain).totals.bytes)
end)

-- Layers in a loop, a head tied to the embedding, layers shared by all iterations: gradients with several writers.
local MODELS = {
    mlp = [[
data       { "csv", train = "sums_few.csv", target = "last" }
model      { linear "in" { 12 }, times(3) "h" { residual { linear "fc1" { 20 }, gelu {}, linear "fc2" { 12 } } },
             linear "out" { 3 } }
]],
    shared = [[
data       { "csv", train = "sums_few.csv", target = "last" }
model      (function(batch)
    local mix = linear "mix" { 8 }
    local x = times(3) "h" (function(x) return tanh(mix(x)) + linear "own" { 8 } (x) end) (linear "in" { 8 } (batch.input))
    return linear "out" { 3 } (tanh(mix(x)))
end)
]],
}

-- The head writes the gradient of the tied table, in runs of rows, and then the embedding adds to it. Keys have no
-- bias: its gradient is 0 except for rounding, and adamw would turn that into steps.
MODELS.tied = [[
data       { "text", train = "sums_few.txt", context = 8 }
model      { embedding "wte" { 23, 16 }, positions "wpe" { 8 },
             times(2) "h" { residual { layernorm "ln" {}, linear "qkv" { 48, bias = false }, attend { heads = 2, causal = true },
                                       linear "proj" { 16 } } }, unembed { "wte" } }
memory     { logits = "chunked", logits_rows = 10 }
]]

-- 18 rows, for the text too: six micro-batches of an epoch, a cycle of four and one of two.
local function write_text(t, programs)
    local bytes, lines = {}, {}
    for i = 1, 145 do bytes[i] = string.char(97 + (i <= 23 and i - 1 or (i * i + i // 7) % 23)) end
    t.write(programs.folder() .. "/data/sums_few.txt", table.concat(bytes))
    for i = 1, 18 do
        local row = {}
        for k = 1, 4 do row[k] = ("%.3f"):format(math.sin(i * k + i % 3) + (k == i % 3 and 1 or 0)) end
        lines[i] = table.concat(row, ",") .. "," .. i % 3
    end
    t.write(programs.folder() .. "/data/sums_few.csv", table.concat(lines, "\n") .. "\n")
end

local function model(name, precision, more)
    return MODELS[name] .. ([[
batch      (3)
accumulate { 4, tail = "flush" }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
clip       (0.05)
precision  %s
train      { updates = 9, seed = 3 }
]]):format(precision) .. (more or "")
end

for _, name in ipairs { "mlp", "shared", "tied" } do
    add("in f64 equal to plain sums, up to rounding: " .. name, function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        write_text(t, programs)
        local plain = programs.dump(programs.build("sums_f64_" .. name, model(name, '"f64"')), {})
        local p = programs.build(("sums_%s_c"):format(name), model(name, '{ "f64", accum = "kahan" }'))
        local files = { "parameters", "state", "gradients" }
        programs.close(programs.dump(p, { "--threads", 2 }), plain, 1e-12, files)
        programs.identical(programs.dump(p, { "--threads", 1 }), programs.dump(p, { "--threads", 3 }), files)
    end)

    add("a device equals the C target: " .. name, function(t)
        if name == "shared" then t.long() end
        write_text(t, devices.open(t))
        local text, how = model(name, '{ "f64", accum = "kahan" }'), { cycles = 3, light = name ~= "mlp" }
        devices.same_as_c(t, "sums_" .. name, text, 1e-12, how)
    end)
end

add("closer to f64 than plain sums", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function gradients(name, precision)
        local text = model("mlp", precision):gsub("sums_few.csv", "tiny.csv"):gsub("batch      %(3%)", "batch (1)")
            :gsub("accumulate %b{}", "accumulate (90)"):gsub("clip [^\n]*\n", ""):gsub("updates = 9", "updates = 1")
        return programs.dump(programs.build("sums_close_" .. name, text), {}) .. "/gradients.safetensors"
    end
    local exact = programs.tensors(gradients("f64", '"f64"'))
    local function error_of(path)
        local sum = 0
        for name, tensor in next, programs.tensors(path) do
            for i, value in ipairs(tensor.values) do sum = sum + (value - exact[name].values[i]) ^ 2 end
        end
        return math.sqrt(sum)
    end
    local plain, kahan = error_of(gradients("f32", '"f32"')), error_of(gradients("kahan", '{ accum = "kahan" }'))
    assert(kahan < 0.7 * plain, ("%g, plainly %g"):format(kahan, plain))
end)

-- Only the order of the last roundings differs: the gradient of a micro-step itself is not 16 bits.
add("with activations of 16 bits", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_text(t, programs)
    for _, kind in ipairs { "bf16", "f16" } do
        local plain = programs.build("sums_plain_" .. kind, model("mlp", ("%q"):format(kind)))
        local p = programs.build("sums_kahan_" .. kind, model("mlp", ('{ %q, accum = "kahan" }'):format(kind)))
        programs.close(programs.dump(p, { "--cycles", 1 }), programs.dump(plain, { "--cycles", 1 }), 1e-5, { "gradients" })
    end
end)

-- On both targets, stopped at some micro-steps: the same bits as without a stop.
local function resumes(t, programs, environment, name, precision)
    write_text(t, programs)
    for _, target in ipairs { "c", "cuda" } do
        local p = programs.build(name .. target, model("mlp", precision, ("target %q\n"):format(target)))
        local env = target == "cuda" and environment() or nil
        local whole = programs.dump(p, { env = env })
        for _, k in ipairs(target == "c" and { 2, 3, 4, 5, 6, 26 } or { 3 }) do
            local folder = t.temp() .. "/checkpoints"
            programs.train(p, { "--stop-micro", k, "--checkpoint", folder, status = 75, env = env })
            programs.identical(programs.dump(p, { "--checkpoint", folder, "--resume", "latest", env = env }), whole,
                { "parameters", "state", "gradients" })
        end
    end
end

add("resumed inside a cycle: the same bits", function(t)
    local programs, environment = devices.open(t)
    resumes(t, programs, environment, "sums_resumed_", '{ accum = "kahan" }')
    -- a checkpoint with a partial sum but no residue is refused
    local plain, folder = programs.build("sums_f32_mlp", model("mlp", '"f32"')), t.temp() .. "/checkpoints"
    programs.train(plain, { "--stop-micro", 3, "--checkpoint", folder, status = 75 })
    local p = programs.build("sums_resumed_c", model("mlp", '{ accum = "kahan" }', 'target "c"\n'))
    local result = programs.train(p, { "--checkpoint", folder, "--resume", "latest", status = 1 })
    t.contains(result.err, "in.weight.residue")
end)

add("two ranks, stopped inside a cycle and not", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_text(t, programs)
    local text = model("mlp", '{ "f64", accum = "kahan" }', 'parallel "ddp"\n'):gsub("batch      %(3%)", "batch (1)")
    local two = programs.build("sums_two", text, { comm = "mpi" })
    local plain = programs.build("sums_two_plain", (text:gsub(', accum = "kahan"', "")), { comm = "mpi" })
    local expected = programs.dump(plain, { ranks = 2, "--threads", 1 })
    programs.close(programs.dump(two, { ranks = 2, "--threads", 1 }), expected, 1e-12)
    local folder = t.temp() .. "/checkpoints"
    programs.train(two, { ranks = 2, "--threads", 1, "--stop-micro", 6, "--checkpoint", folder, status = false })
    programs.close(programs.dump(two, { ranks = 2, "--threads", 1, "--checkpoint", folder, "--resume", "latest" }),
        expected, 1e-12)
end)

-- === sums of 16 bits ==============================================================================

-- x in bf16: to nearest, ties to even; with `drawn` in [0, 1) stochastic, away from 0 with the fraction's probability.
local function bf16(x, drawn)
    local bits = string.unpack("<I4", string.pack("<f", x))
    bits = bits + (drawn and math.floor(drawn * 65536) or 0x7fff + bits // 65536 % 2)
    return (string.unpack("<f", string.pack("<I4", bits // 65536 * 65536)))
end

-- The gradient of `a` rows from row `first` on by definition: each sum rounded. draw(row, element): or nil.
local function summed(first, a, width, draw)
    local out = {}
    for c, value in ipairs(COLUMNS) do
        for j = 0, width - 1 do
            local sum = 0
            for k = 0, a - 1 do
                local row = f32(tonumber(("%.9g"):format(f32(value(first + k)))))
                sum = bf16(f32(sum + row), draw and draw(k, j * #COLUMNS + c - 1))
            end
            out[j * #COLUMNS + c] = sum
        end
    end
    return out
end

local function wide(text, width) return (text:gsub('{ 1, bias', "{ " .. width .. ", bias")) end

local function same_values(t, found, expected)
    t.equal(#found, #expected)
    for i, value in ipairs(expected) do
        if found[i] ~= value then error(("element %d: %.9g, expected %.9g"):format(i, found[i], value)) end
    end
end

for _, target in ipairs { "c", "cuda" } do
    add("in bf16 each sum is rounded, against the definition: " .. target, function(t)
        local programs, environment = devices.open(t)
        local draw = t.load("tests/lua/rng.lua")
        write_rows(t, programs)
        local env = target == "cuda" and environment() or nil
        for _, name in ipairs { "nearest", "drawn" } do
            local drawn = name == "drawn"
            -- the gradient after `done` cycles must be that of the last one: `a` rows from `first` on
            local function check(counts, done, first, a)
                local precision = ('{ accum = "bf16", stochastic = %s }'):format(drawn)
                local text = wide(spec(precision, counts, ("target     %q\n"):format(target)), 3)
                    :gsub("updates = 1", "updates = 2, seed = 11")
                local p = programs.build(("sums_%s_%d_%s"):format(name, #counts, target), text)
                local expected = summed(first, a, 3, drawn and function(row, element)
                    return draw(11, "sum of w.weight", 0, done - 1, row, element)
                end or nil)
                same_values(t, gradient(programs, p, { "--cycles", done, "--threads", 1, env = env }), expected)
            end
            local two = "{ 4, later = { [1] = 50 } }"
            check("(1)", 1, 0, 1)
            check(two, 1, 0, 4)
            check(two, 2, 4, 50)
        end
    end)
end

-- Each rounding is at most 1/64, the distance of neighbours below 4, so its variance is at most 2^-14 and that of 512
-- at most 2^-5; the mean over 256 elements is within 5 of its deviations, 0.055, of the exact sum.
add("stochastic rounding keeps contributions too small for bf16", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local lines = {}
    for k = 0, 512 do lines[k + 1] = (k == 0 and "1" or "0.001953125") .. ",0" end
    t.write(programs.folder() .. "/data/small.csv", table.concat(lines, "\n") .. "\n")
    local function values(name, precision)
        local text = wide(spec(precision, 513), 256):gsub("sums.csv", "small.csv")
        return gradient(programs, programs.build("sums_small_" .. name, text), {})
    end
    for _, value in ipairs(values("nearest", '{ accum = "bf16" }')) do t.equal(value, 1.0) end
    local sum, different, list = 0, {}, values("drawn", '{ accum = "bf16", stochastic = true }')
    for _, value in ipairs(list) do sum, different[value] = sum + value, true end
    t.equal(#list, 256)
    t.near(sum / 256, 2, 0.055)
    local count = 0
    for _ in next, different do count = count + 1 end
    assert(count > 5, "elements draw the same")
end)

local STOCHASTIC = '{ accum = "bf16", stochastic = true }'

add("in bf16 any number of threads gives the same bits", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_text(t, programs)
    for _, precision in ipairs { STOCHASTIC, '{ "bf16", accum = "bf16" }' } do
        local text = model("mlp", precision):gsub("12", "120")
        local p = programs.build("sums_threads" .. #precision, text)
        programs.identical(programs.dump(p, { "--threads", 1 }), programs.dump(p, { "--threads", 3 }),
            { "parameters", "state", "gradients" })
    end
end)

-- Four sums, each rounded by at most 2^-9: in a tensor's largest element an error of at most about 2^-7.
for _, name in ipairs { "mlp", "shared", "tied" } do
    add("in bf16 nearly the gradient of f32: " .. name, function(t)
        local programs, environment = devices.open(t)
        write_text(t, programs)
        local plain = programs.dump(programs.build("sums_f32_" .. name, model(name, '"f32"')), { "--cycles", 1 })
        for _, target in ipairs((t.all or name == "tied") and { "c", "cuda" } or { "c" }) do
            local p = programs.build(("sums_half_%s_%s"):format(name, target),
                model(name, STOCHASTIC, ("target %q\n"):format(target)))
            local found = programs.dump(p, { "--cycles", 1, env = target == "cuda" and environment() or nil })
            local exact = programs.tensors(plain .. "/gradients.safetensors")
            for key, tensor in next, programs.tensors(found .. "/gradients.safetensors") do
                t.equal(tensor.dtype, "BF16")
                local largest, gap = 0, 0
                for i, value in ipairs(exact[key].values) do
                    largest, gap = math.max(largest, math.abs(value)), math.max(gap, math.abs(value - tensor.values[i]))
                end
                if gap > largest / 64 then error(("%s %s: %g of %g"):format(target, key, gap, largest)) end
            end
        end
    end)
end

-- A layer and those of a loop read the data, so each gradient is a sum of rows.
local RULES = { sgd = '"sgd", lr = 1e-2, momentum = 0.9', adamw = '"adamw", lr = 1e-2', lamb = '"lamb", lr = 1e-2',
    adafactor = '"adafactor", lr = 1e-2', muon = '"muon", lr = 1e-2, rest = { "sgd", lr = 1e-2 }' }

-- A file of 40 rows.
local function write_40(t, path, format, row)
    local lines = {}
    for k = 0, 39 do lines[k + 1] = format:format(row(k)) end
    t.write(path, table.concat(lines, "\n") .. "\n")
end

local function of_rows(t, programs, name, precision, target)
    write_40(t, programs.folder() .. "/data/whole.csv", "%d,%d,%d,%d,0", function(k)
        return k % 7, k * k % 11 - 5, k % 3 * 9, k * 5 % 13 - 6
    end)
    local text = spec(precision, 4, ("clip (3)\ntarget %q\n"):format(target)):gsub("sums.csv", "whole.csv")
        :gsub('"sgd", lr = 1e%-3', RULES[name]):gsub("updates = 1", "updates = 5"):gsub("model [^\n]*", [[
model(function(batch)
    return times(2) "h" (function(x) return x + linear "fc" { 6 } (batch.input) end) (linear "w" { 6 } (batch.input))
end)]])
    return programs.build(("sums_rows%d_%s_%s"):format(#precision, name, target), text)
end

-- The logged norm must be that of the dumped, rounded gradients; parameters change as `before` to `after`, nearly.
local function by_stored_sums(t, programs, folder, log, before, after)
    local squares, norm = 0, nil
    for _, tensor in next, programs.tensors(folder .. "/gradients.safetensors") do
        t.equal(tensor.dtype, "BF16")
        for _, value in ipairs(tensor.values) do squares = squares + value * value end
    end
    for _, event in ipairs(t.load("tests/lua/json.lua").lines(host.read(log))) do norm = event.grad_norm or norm end
    t.near(norm, math.sqrt(squares), 1e-6 * norm)
    for key, tensor in next, programs.tensors(folder .. "/parameters.safetensors") do
        local moved, gap = 0, 0
        for i, value in ipairs(tensor.values) do
            moved = moved + (after[key].values[i] - before[key].values[i]) ^ 2
            gap = gap + (after[key].values[i] - value) ^ 2
        end
        if not (moved > 0 and gap < moved / 1000) then error(("%s: %g of %g"):format(key, gap, moved)) end
    end
end

-- sgd with the models of above and sums to nearest, the others with drawn ones.
for _, name in ipairs { "sgd", "lamb", "adafactor" } do
    add("in bf16 the boundary reads the stored sums: " .. name, function(t)
        local programs, environment = devices.open(t)
        write_text(t, programs)
        local function build(precision, target)
            if name ~= "sgd" then return of_rows(t, programs, name, precision and STOCHASTIC or '"f32"', target) end
            local text = model("mlp", precision or '"f32"', ("target %q\n"):format(target))
            return programs.build(("sums_%s_sgd_%s"):format(precision and "half" or "f32", target),
                (text:gsub("adamw", name):gsub("clip [^\n]*\n", "")))
        end
        local data, start = programs.folder() .. "/data", t.temp() .. "/start.safetensors"
        if name ~= "sgd" then
            data = t.temp()
            write_40(t, data .. "/whole.csv", "%.6f,%.6f,%.6f,%.6f,0", function(k)
                return math.sin(k + 2) + 0.3, math.sin(4 * k) + 0.3, math.sin(9 * k) - 0.4, math.sin(16 * k) + 1
            end)
        end
        local plain = programs.dump(build(nil, "c"), { "--cycles", 1, "--save-init", start, "--data", data })
        local before, after = programs.tensors(start), programs.tensors(plain .. "/parameters.safetensors")
        for _, target in ipairs((t.all or name == "lamb") and { "c", "cuda" } or { "c" }) do
            local folder, log = t.temp(), t.temp() .. "/log"
            programs.train(build('{ accum = "bf16" }', target), { "--cycles", 1, "--dump", folder, "--log", log,
                "--data", data, env = target == "cuda" and environment() or nil })
            by_stored_sums(t, programs, folder, log, before, after)
        end
    end)
end

-- Small whole numbers and their sums are exact in bf16, so nothing is rounded, for any draw. Rules take targets in turn.
for i, name in ipairs { "sgd", "adamw", "lamb", "adafactor", "muon" } do
    add("in bf16 sums that need no rounding train as in f32, bit for bit: " .. name, function(t)
        local programs, environment = devices.open(t)
        for _, target in ipairs(t.all and { "c", "cuda" } or i % 2 == 1 and { "c" } or { "cuda" }) do
            local function trained(precision)
                return programs.dump(of_rows(t, programs, name, precision, target), { env = environment() })
            end
            programs.identical(trained(STOCHASTIC), trained '"f32"')
        end
    end)
end

add("in bf16 resumed inside a cycle: the same bits; a sum of f32 is refused by name", function(t)
    local programs, environment = devices.open(t)
    resumes(t, programs, environment, "sums_half_mlp_", STOCHASTIC)
    local plain, folder = programs.build("sums_f32_mlp", model("mlp", '"f32"')), t.temp() .. "/checkpoints"
    programs.train(plain, { "--stop-micro", 3, "--checkpoint", folder, status = 75 })
    local p = programs.build("sums_half_mlp_c", model("mlp", STOCHASTIC, 'target "c"\n'))
    local result = programs.train(p, { "--checkpoint", folder, "--resume", "latest", status = 1 })
    t.contains(result.err, "in.weight")
    t.contains(result.err, "is F32, which BF16 would round")
end)

-- Flags of the linker as in test_plan.
local WRAP = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=mmap,--wrap=ga_say"

add("in bf16 the gradient takes half the bytes, and the planned bytes are mapped", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_text(t, programs)
    local function large(precision) return (model("mlp", precision):gsub("12", "512")) end
    local p = programs.build("sums_large_half", large '{ accum = "bf16" }',
        { ldflags = WRAP, sources = { "tests/e2e/count_memory.c" } })
    local bytes = t.match(programs.train(p, { "--cycles", 2 }).err, "counted: (%d+) bytes")
    t.equal(tonumber(bytes), programs.plan(p).totals.bytes)
    local function arenas(build, name)
        for _, arena in ipairs(programs.plan(build).arenas) do
            if arena.name == name then return arena.bytes end
        end
    end
    local plain = described(t, programs, "sums_large", large '"f32"')
    local whole, half = arenas(plain, "gradients"), arenas(p, "gradients")
    assert(whole > 100000 and half >= whole // 2 and half < whole // 2 + 4096, ("%d, %d"):format(whole, half))
    t.equal(arenas(p, "parameters"), arenas(plain, "parameters"))
end)

add("sums of bf16 refuse wrong combinations", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_text(t, programs)
    local path = programs.folder() .. "/sums_refused.lua"
    local function refused(precision, more, expected, name)
        t.write(path, (model(name or "mlp", precision, more):gsub("clip [^\n]*\n", "", 1)))
        local result = programs.gagen { path, "-o", t.temp() .. "/refused" }
        t.equal(result.status, 1)
        t.contains(result.err, expected)
        t.contains(result.err, "sums_refused.lua:")
    end
    local HALF = '{ accum = "bf16" }'
    refused("{ stochastic = true }", "", 'precision: stochastic with accum = "f32", expected accum = "bf16"')
    refused('{ accum = "kahan", stochastic = true }', "", 'stochastic with accum = "kahan"')
    for _, compute in ipairs { "f64", "f16" } do
        refused(('{ %q, accum = "bf16" }'):format(compute), "",
            ('accum = "bf16" together with arithmetic "%s" is not possible'):format(compute))
    end
    refused(HALF, 'parallel "ddp"\n', 'accum = "bf16" together with parallel is not possible')
    refused(HALF, "clip { value = 0.5 }\n", 'accum = "bf16" together with clip { value = ... } is not possible')
    refused(HALF, "gradient (function(g, w) return g + 0.01 * w end)\n", "together with gradient is not possible")
    refused(HALF, "scaler { initial_scale = 1024 }\n", "together with scaler is not possible")
    MODELS.moving = MODELS.mlp:gsub('times%(3%)', 'batchnorm "bn" { running = "cycle" }, %0')
    refused(HALF, "", 'batchnorm: running = "cycle" together with precision { accum = "bf16" } is not possible', "moving")
end)

return tests
