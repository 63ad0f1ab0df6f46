-- Sums over the micro-steps that lose nothing: precision { accum = "kahan" }. Where each micro-step's gradient is a
-- row of the data, exactly, the gradient of a cycle must be the sum of the rows as f64 has it, rounded once.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local ROWS = 4096

local function f32(x) return (string.unpack("<f", string.pack("<f", x))) end

-- What is summed up in each column: a 1 and then what f32 cannot add to it; sizes far apart that cancel; numbers
-- without a pattern; and the same growing, so that sums are smaller than what is added.
local COLUMNS = {
    function(k) return k == 0 and 1 or 2 ^ -25 end,
    function(k) return (k % 4 == 0 and 2 ^ 20 or k % 4 == 2 and -2 ^ 20 or 0) + 2 ^ -10 * (k % 3) end,
    function(k) return math.sin(k * k) + 0.37 end,
    function(k) return math.sin(k) * 1.005 ^ k * 1e-3 + k * 1e-7 end,
}

-- The file of rows, and the sums of what it says, read as f32.
local function write_rows(t, programs)
    local lines, sums = {}, { 0, 0, 0, 0 }
    for k = 0, ROWS - 1 do
        local row = {}
        for c, value in ipairs(COLUMNS) do
            row[c] = ("%.9g"):format(f32(value(k)))
            sums[c] = sums[c] + f32(tonumber(row[c]))
        end
        row[5] = tostring(k % 2)
        lines[k + 1] = table.concat(row, ",")
    end
    t.write(programs.folder() .. "/data/sums.csv", table.concat(lines, "\n") .. "\n")
    return sums
end

-- The derivative of the loss by each weight is the sum of its column.
local function spec(precision, a, more)
    return ([[
data       { "csv", train = "sums.csv", target = "last", shuffle = false }
batch      (1)
accumulate (%d)
model      { linear "w" { 1, bias = false } }
loss       { function(out, batch) return sum(out) end, weight = "sum" }
optimizer  { "sgd", lr = 1e-3 }
precision  %s
train      { updates = 1 }
]]):format(a, precision) .. (more or "")
end

local function gradient(programs, p, o)
    return programs.tensors(programs.dump(p, o or {}) .. "/gradients.safetensors")["w.weight"].values
end

-- What neighbours in f32 differ by at x.
local function ulp(x) return 2.0 ^ (math.floor(math.log(math.abs(x), 2)) - 23) end

for _, target in ipairs { "c", "cuda" } do
    add("4,096 micro-steps: the sum of f64, rounded once: " .. target, function(t)
        local programs, environment = dofile "tests/lua/devices.lua".open(t)
        local a = target == "c" and ROWS or 1024
        local sums = write_rows(t, programs)
        if a < ROWS then
            sums = { 0, 0, 0, 0 }
            for k = 0, a - 1 do
                for c, value in ipairs(COLUMNS) do sums[c] = sums[c] + f32(value(k)) end
            end
        end
        local more = ("target     %q\n"):format(target)
        local env = target == "cuda" and environment() or nil
        local kahan = gradient(programs, programs.build("sums_kahan_" .. target,
            spec('{ accum = "kahan" }', a, more)), { "--no-graph", env = env })
        local plain = gradient(programs, programs.build("sums_plain_" .. target, spec('"f32"', a, more)),
            { "--no-graph", env = env })
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

add("a cycle of one micro-step, and a program of such cycles", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs)
    local p = programs.build("sums_one", spec('{ accum = "kahan" }', 1))
    assert(not host.read(p.folder .. "/kernels.c"):find("accumulate", 1, true), "nothing is to be added")
    t.equal(programs.plan(p).totals.bytes, programs.plan(programs.build("sums_one_plain", spec('"f32"', 1))).totals.bytes)
end)

-- Layers in a loop, a head tied to the embedding, layers shared by all iterations: gradients with several writers.
local MODELS = {
    mlp = [[
data       { "csv", train = "tiny.csv", target = "last" }
model      { linear "in" { 12 }, times(3) "h" { residual { linear "fc1" { 20 }, gelu {}, linear "fc2" { 12 } } },
             linear "out" { 3 } }
]],
    shared = [[
data       { "csv", train = "tiny.csv", target = "last" }
model      (function(batch)
    local mix = linear "mix" { 8 }
    local x = times(3) "h" (function(x) return tanh(mix(x)) + linear "own" { 8 } (x) end) (linear "in" { 8 } (batch.input))
    return linear "out" { 3 } (tanh(mix(x)))
end)
]],
}

-- The tied table is written by the head, in runs of rows, and then by the embedding. Without biases of keys, whose
-- gradients are 0 but for rounding, of which adamw would make steps.
MODELS.tied = [[
data       { "text", train = "sums.txt", context = 8 }
model      { embedding "wte" { 23, 16 }, positions "wpe" { 8 },
             times(2) "h" { residual { layernorm "ln" {}, linear "qkv" { 48, bias = false }, attend { heads = 2, causal = true },
                                       linear "proj" { 16 } } }, unembed { "wte" } }
memory     { logits = "chunked", logits_rows = 10 }
]]

local function write_text(t, programs)
    local bytes = {}
    for i = 1, 400 do bytes[i] = string.char(97 + (i * i + i // 7) % 23) end
    t.write(programs.folder() .. "/data/sums.txt", table.concat(bytes))
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
    add("in f64 what plain sums give, up to rounding: " .. name, function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        write_text(t, programs)
        local plain = programs.dump(programs.build("sums_f64_" .. name, model(name, '"f64"')), {})
        local p = programs.build("sums_f64_kahan_" .. name, model(name, '{ "f64", accum = "kahan" }'))
        programs.close(programs.dump(p, { "--threads", 2 }), plain, 1e-12, { "parameters", "state", "gradients" })
        programs.identical(programs.dump(p, { "--threads", 1 }), programs.dump(p, { "--threads", 3 }),
            { "parameters", "state", "gradients" })
    end)

    add("on a device what the C target gives: " .. name, function(t)
        local devices = dofile "tests/lua/devices.lua"
        write_text(t, devices.open(t))
        devices.same_as_c(t, "sums_" .. name, model(name, '{ "f64", accum = "kahan" }'), 1e-12, 8)
    end)
end

add("closer to f64 than plain sums are", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function gradients(name, precision)
        local text = model("mlp", precision):gsub("batch      %(3%)", "batch (1)"):gsub("accumulate %b{}", "accumulate (90)")
            :gsub("clip [^\n]*\n", ""):gsub("updates = 9", "updates = 1")
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
    for _, kind in ipairs { "bf16", "f16" } do
        local plain = programs.build("sums_plain_" .. kind, model("mlp", ("%q"):format(kind)))
        local p = programs.build("sums_kahan_" .. kind, model("mlp", ('{ %q, accum = "kahan" }'):format(kind)))
        programs.close(programs.dump(p, { "--cycles", 1 }), programs.dump(plain, { "--cycles", 1 }), 1e-5, { "gradients" })
    end
end)

add("resumed inside a cycle: the same bits", function(t)
    local programs, environment = dofile "tests/lua/devices.lua".open(t)
    for i, more in ipairs { "", 'target "cuda"\n' } do
        local p = programs.build("sums_resumed" .. i, model("mlp", '{ accum = "kahan" }', more))
        local env = i == 2 and environment() or nil
        local whole = programs.dump(p, { env = env })
        for _, k in ipairs(i == 1 and { 2, 3, 4, 29, 30 } or { 3 }) do
            local folder = t.temp() .. "/checkpoints"
            programs.train(p, { "--stop-micro", k, "--checkpoint", folder, status = 75, env = env })
            programs.identical(programs.dump(p, { "--checkpoint", folder, "--resume", "latest", env = env }), whole,
                { "parameters", "state", "gradients" })
        end
    end
    -- a partial sum without its residue is not one of this program
    local plain, folder = programs.build("sums_plain_mlp", model("mlp", '"f32"')), t.temp() .. "/checkpoints"
    programs.train(plain, { "--stop-micro", 3, "--checkpoint", folder, status = 75 })
    local p = programs.build("sums_resumed1", model("mlp", '{ accum = "kahan" }'))
    local result = programs.train(p, { "--checkpoint", folder, "--resume", "latest", status = 1 })
    t.contains(result.err, "in.weight.residue")
end)

add("two ranks, stopped inside a cycle and not", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
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

return tests
