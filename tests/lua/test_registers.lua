-- Attention in bf16 on the matrix registers of the processor, or on their instructions in plain C
-- (tests/matrix/plain.h), against vectors. test_products.lua and test_precision.lua have linear layers.
local profile = require "emit.program.profile"

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

-- Both gradients differ by roundings of stored values alone, the attention's products being exact but for 2^-16.
add("attention on matrix registers: the gradient is that of plain vectors", function(t)
    local native = profile.native(host.cpu())
    if not native:find "v4" and native ~= "sapphirerapids" then t.not_run("this processor has no AVX-512") end
    local programs = t.load("tests/lua/programs.lua")(t)
    t.write(programs.folder() .. "/data/registers.txt", letters())
    local function gradients(march, level)
        local p = programs.build("registers_attention_" .. march:gsub("%-", "_"), ATTENTION,
            { options = { "--march", march }, level = level })
        return programs.dump(p, { "--cycles", 1 }) .. "/gradients.safetensors"
    end
    local plain = native ~= "sapphirerapids" and ("%s -include %s/tests/matrix/plain.h"):format(t.quick, t.root) or nil
    local worst, where = programs.distance(gradients("sapphirerapids", plain), gradients "x86-64-v3")
    if worst > 4 * 2.0 ^ -8 then error(("%s differs by %.3g"):format(where, worst)) end
end)

return tests
