-- Attention in blocks on the processor's instructions for bf16, or on these in plain C (tests/matrix), of bf16
-- and of f32 against vectors of f32; the instructions against those in plain C. test_products.lua and
-- test_precision.lua have linear layers.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local function letters()
    local bytes = {}
    for i = 1, 400 do bytes[i] = string.char(97 + (i * i + i // 7) % 23) end
    return table.concat(bytes)
end

-- Heads of 20 elements, tiles with a rest, shared keys, one layer that sees all and one with dropout.
local ATTENTION = [[
data       { "text", train = "registers.txt", context = 75 }
batch      (2)
accumulate (2)
model(function(batch)
    local x = positions "wpe" { 75 } (embedding "wte" { 24, 40 } (batch.input))
    for i, o in ipairs { { causal = true }, { dropout = 0.1 }, { causal = true, kv_heads = 1 } } do
        o.heads, o.kv_heads = 2, o.kv_heads or 2
        x = x + block("h" .. i) {
            layernorm "norm" {}, linear "qkv" { 40 + 40 * o.kv_heads }, attend(o), linear "out" { 40 },
        } (x)
    end
    return unembed { "wte" } (layernorm "last" {} (x))
end)
init       { { "*norm.weight", value = 1 }, { "last.weight", value = 1 }, { "*", normal = 0.3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
precision  "bf16"
]]

-- The gradients of a text of the spec, the first by default, for a profile; and the program.
local function gradients_of_attention(t, march, spec, name)
    local programs, options = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/marches.lua")(t).options(march)
    t.write(programs.folder() .. "/data/registers.txt", letters())
    local p = programs.build("registers_attention_" .. (name or "") .. march:gsub("%-", "_"), spec or ATTENTION,
        { options = { "--march", march }, level = t.quick .. " " .. options })
    return programs.dump(p, { "--cycles", 1 }) .. "/gradients.safetensors", programs, p
end

-- Both gradients differ by roundings of stored values alone, the attention's products being exact but for 2^-16.
for _, march in ipairs { "sapphirerapids", "x86-64-v4-bf16" } do
    add(("attention on %s: the gradient is that of plain vectors"):format(march), function(t)
        local found, programs = gradients_of_attention(t, march)
        local worst, where = programs.distance(found, (gradients_of_attention(t, "x86-64-v3")))
        if worst > 4 * 2.0 ^ -8 then error(("%s differs by %.3g"):format(where, worst)) end
    end)
end

-- Heads of 28 elements: with 20 more than half of the multiplications would be of zeros, and vectors would compute.
local function wide(precision) return (ATTENTION:gsub("40", "56"):gsub('"bf16"', precision)) end

-- Both gradients differ by roundings of f32, 2^-18 here; products in two slices would differ by 2^-13.
add("attention of f32 on sapphirerapids: in blocks, and the gradient is that of plain vectors", function(t)
    local found, programs, p = gradients_of_attention(t, "sapphirerapids", wide '{ "f32", f32 = "bf16x6" }', "f32_")
    local kernels = host.read(p.folder .. "/kernels.c")
    t.contains(kernels, "tile_matrix(score")
    t.contains(kernels, "tile_matrix(d_key")
    local worst, where = programs.distance(found, (gradients_of_attention(t, "x86-64-v3", wide '"f32"', "f32_")))
    if worst > 2.0 ^ -16 then error(("%s differs by %.3g"):format(where, worst)) end
end)

-- 300 positions: tiles have 256 queries and as many keys.
for _, case in ipairs { { "bf16", '"bf16"', '"bf16"', 4 * 2.0 ^ -8 },
    { "f32", '{ "f32", f32 = "bf16x6" }', '"f32"', 2.0 ^ -16 } } do
    add(("attention of %s on sapphirerapids: several tiles"):format(case[1]), function(t)
        local function long(precision)
            local spec = wide(precision):gsub("75", "300"):gsub("batch +%(2%)", "batch (1)")
            return (spec:gsub("accumulate %(2%)", "accumulate (1)"))
        end
        local name = "long_" .. case[1] .. "_"
        local found, programs, p = gradients_of_attention(t, "sapphirerapids", long(case[2]), name)
        t.contains(host.read(p.folder .. "/kernels.c"), "T = 300")
        local worst, where = programs.distance(found, (gradients_of_attention(t, "x86-64-v3", long(case[3]), name)))
        if worst > case[4] then error(("%s differs by %.3g"):format(where, worst)) end
    end)
end

-- Heads of 20 elements, 75 positions: blocks would take 2.6 times the multiplications.
add("attention of f32 on sapphirerapids: small heads stay on vectors", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.temp()
    t.write(folder .. "/data/registers.txt", letters())
    t.write(folder .. "/small.lua", (ATTENTION:gsub('"bf16"', '"f32"')))
    local result = programs.gagen { folder .. "/small.lua", "--march", "sapphirerapids", "-o", folder .. "/small" }
    t.equal(result.status, 0, result.err)
    local kernels = host.read(folder .. "/small/kernels.c")
    t.contains(kernels, "tile_product(score")
    t.equal(kernels:find("tile_matrix", 1, true), nil)
end)

add("pairs of bf16: the instruction has the bits of the one in plain C", function(t)
    if not t.load("tests/lua/marches.lua")(t).runs "x86-64-v4-bf16" then t.not_run("this processor has no AVX512-BF16") end
    local program = t.root .. "/" .. t.temp() .. "/pairs"
    local built = t.run { "cc", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-mavx512f",
        "-mavx512bf16", "-I" .. t.root, "-I" .. t.root .. "/runtime", "-o", program, t.root .. "/tests/numeric/pairs.c",
        t.root .. "/" .. t.build .. "/libruntime.a", "-lm" }
    t.equal(built.status, 0, built.err)
    t.equal(t.run { program }.out, "0 wrong\n")
end)

return tests
