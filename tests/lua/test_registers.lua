-- Attention in bf16 on the processor's instructions for bf16, or on these in plain C (tests/matrix/plain.h), against
-- vectors of f32; the instructions against those in plain C. test_products.lua and test_precision.lua have linear layers.
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

local function gradients_of_attention(t, march)
    local programs, options = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/marches.lua")(t).options(march)
    t.write(programs.folder() .. "/data/registers.txt", letters())
    local p = programs.build("registers_attention_" .. march:gsub("%-", "_"), ATTENTION,
        { options = { "--march", march }, level = t.quick .. " " .. options })
    return programs.dump(p, { "--cycles", 1 }) .. "/gradients.safetensors", programs
end

-- Both gradients differ by roundings of stored values alone, the attention's products being exact but for 2^-16.
for _, march in ipairs { "sapphirerapids", "x86-64-v4-bf16" } do
    add(("attention on %s: the gradient is that of plain vectors"):format(march), function(t)
        local found, programs = gradients_of_attention(t, march)
        local worst, where = programs.distance(found, (gradients_of_attention(t, "x86-64-v3")))
        if worst > 4 * 2.0 ^ -8 then error(("%s differs by %.3g"):format(where, worst)) end
    end)
end

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
