-- A whole model of an encoder and a decoder, whose queries are fewer than the encoder's keys: both targets, numbers of
-- micro-steps, recomputation, types of 16 bits, and what the plan says of its cost. test_attention.lua has the formulas.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SOURCE, TARGET, ROWS = 7, 4, 256      -- positions of the encoder and of the decoder; rows of the file

-- Rows of 5 to 7 letters 1 .. 8, padded with 0; the target is their last four backwards.
local function data_file(t)
    local source, mask, input, target = {}, {}, {}, {}
    for r = 1, ROWS do
        local n, letters = SOURCE - r % 3, {}
        for j = 1, SOURCE do
            letters[j] = j <= n and (r * r * 3 + j * j * r + r // 5 + 7 * j) % 8 + 1 or 0
            source[#source + 1], mask[#mask + 1] = letters[j], j <= n and 1 or 0
        end
        for i = 1, TARGET do
            input[#input + 1] = i == 1 and 0 or target[#target]
            target[#target + 1] = letters[n + 1 - i]
        end
    end
    local rows = t.load "tests/numeric/rows.lua"
    return rows.file { { "source", "I32", { ROWS, SOURCE }, source }, { "mask", "I32", { ROWS, SOURCE }, mask },
        { "input", "I32", { ROWS, TARGET }, input }, { "target", "I32", { ROWS, TARGET }, target } }
end

-- The decoder's layers read the encoder's result, a tensor from outside of their region.
local function spec(o)
    return ([[
data       { "tensors", train = "backwards.safetensors", target = "target" }
batch      (%d)
accumulate (%d)
model      (function(batch)
    local function keys(name, x) return rotary { heads = 2 } (linear(name) { 12, bias = false } (x)) end
    local function own(x, o) return attend(o) (linear "qkv" { 72, bias = false } (layernorm "norm" {} (x))) end
    local x = embedding "letters" { 9, 24 } (batch.source)
    x = block "encoder" (function(x)
        local h = layernorm "norm" {} (x)
        local q = rotary { heads = 4 } (linear "q" { 24 } (h))
        return x + attend { heads = 4, kv_heads = 2, dropout = %g } (q, keys("k", h), linear "v" { 12 } (h), batch.mask)
    end) (x)
    local memory = layernorm "memory" {} (x)
    local y = positions "places" { %d } (embedding "written" { 9, 24 } (batch.input))
    y = times(2) "decoder" (function(y)
        y = y + own(y, { heads = 4, causal = true })
        local q = rotary { heads = 4 } (linear "q" { 24 } (layernorm "norm2" {} (y)))
        y = y + attend { heads = 4, kv_heads = 2, dropout = %g } (q, keys("k", memory), linear "v" { 12 } (memory),
            batch.mask)
        return y + linear "out" { 24 } (relu {} (linear "in" { 48 } (layernorm "norm3" {} (y))))
    end) (y)
    return linear "head" { 9 } (layernorm "last" {} (y))
end)
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 80, seed = 3 }
%s]]):format(o.batch or 16, o.accumulate or 4, o.dropout or 0, TARGET, o.dropout or 0, o.more or "")
end

local function open(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    t.write(programs.folder() .. "/data/backwards.safetensors", data_file(t))
    return programs
end

local function losses(programs, p, o)
    local list = {}
    for _, event in ipairs(programs.events(p, o)) do
        if event.event == "update" then list[#list + 1] = event.loss end
    end
    return list
end

local F64 = 'precision "f64"\n'

add("letters are written backwards", function(t)
    local programs = open(t)
    local list = losses(programs, programs.build("cross", spec {}), {})
    t.near(list[1], math.log(9), 0.5)
    assert(list[#list] < 0.2, ("the loss is %g after %d updates"):format(list[#list], #list))
end)

add("a device trains it as the C target does, with dropout", function(t)
    open(t)
    devices.same_as_c(t, "cross_f64", spec { batch = 2, accumulate = 2, dropout = 0.2, more = F64 }, 1e-11,
        devices.LIGHT)
end)

add("one micro-step of 64 rows is four of 16, with dropout", function(t)
    local programs = open(t)
    local function dump(name, o)
        o.dropout, o.more = 0.2, F64
        return programs.dump(programs.build(name, spec(o)), { "--cycles", 2, "--threads", 2 })
    end
    programs.close(dump("cross_a4", {}), dump("cross_a1", { batch = 64, accumulate = 1 }), 1e-11,
        { "parameters", "gradients" })
end)

add("recomputation changes no bit", function(t)
    local programs = open(t)
    local function dump(name, more)
        return programs.dump(programs.build(name, spec { dropout = 0.2, more = more }), { "--cycles", 3 })
    end
    programs.identical(dump("cross_again", 'memory { recompute = { "*" } }\n'), dump("cross_kept"),
        { "parameters", "gradients" })
end)

add("in 16 bits the losses are those of f32 within their roundings", function(t)
    local programs = open(t)
    local whole = losses(programs, programs.build("cross", spec {}), { "--cycles", 5 })
    for _, case in ipairs { { "bf16", 0.02 }, { "f16", 0.003 } } do
        local precision, bound = table.unpack(case)
        local p = programs.build("cross_" .. precision, spec { more = ('precision "%s"\n'):format(precision) })
        for i, loss in ipairs(losses(programs, p, { "--cycles", 5 })) do t.near(loss, whole[i], bound * whole[i]) end
    end
end)

-- A pair of a query and a key takes two products of d elements, forward, five backward, and a few operations more.
add("the plan counts pairs of a query and a key that it sees, and the elements of both", function(t)
    local programs = open(t)
    local path = programs.folder() .. "/cross_plan.lua"
    t.write(path, ([[
data      { "csv", train = "tiny.csv", target = "last" }
batch     (3)
model     (function(batch)
    local function of(name, T, width) return reshape { T, width } (linear(name) { T * width } (batch.input)) end
    local function part(name, T, S, causal)
        return linear(name) { 3 } (flatten {} (attend { heads = 4, kv_heads = 2, causal = causal } (
            of(name .. "q", T, 20), of(name .. "k", S, 10), of(name .. "v", S, 10))))
    end
    return part("all", 4, 9, false) + part("fewer", 9, 5, true) + part("more", 6, 9, true)
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 1 }
]]))
    local plan = programs.plan { name = "cross_plan", spec = path }
    local seen = { 4 * 9, 1 + 2 + 3 + 4 + 5 * 5, 1 + 2 + 3 + 4 + 5 + 6 }
    local elements = { 4 * 20 * 2 + 9 * 10 * 2 + 4 * 4, 9 * 20 * 2 + 5 * 10 * 2 + 9 * 4, 6 * 20 * 2 + 9 * 10 * 2 + 6 * 4 }
    local layers, forward, backward = {}, {}, {}
    for _, layer in ipairs(plan.layers) do
        if layer.kind == "attend" then layers[#layers + 1] = layer.flops_per_cycle end
    end
    for _, k in ipairs(plan.kernels) do
        if k.fn:find "^attend_%d" then forward[#forward + 1] = k end
        if k.fn:find "^attend_dx" then table.insert(backward, 1, k.flops) end
    end
    t.equal({ #layers, #forward, #backward }, { 3, 3, 3 })
    for i, pairs_seen in ipairs(seen) do
        local n = 3 * 4 * pairs_seen                -- rows, heads
        t.equal(layers[i], n * (2 * 2 * 5 + 5))
        t.equal(backward[i], n * (5 * 2 * 5 + 6))
        t.equal({ forward[i].flops, forward[i].bytes }, { layers[i], 3 * 4 * elements[i] })
    end
end)

return tests
