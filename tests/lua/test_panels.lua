-- Weights that an update packs into the panels of its products, on the processor's instructions for bf16 or on these in
-- plain C (tests/matrix): the bits are those of products that copy their panels (--without layout).
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- Sums of more terms than a panel has on registers (1,610) and on vectors (448), and of many terms, whose panels are
-- written past the caches (8,192), a joint weight (q, k, v), one stored as (in, out), a head that shares its table, axes
-- of 40 and 1,610, which are no whole blocks of 32, and one of 20, smaller than a block.
local SPEC = [[
data       { "text", train = "panels.txt", context = 12 }
batch      (3)
accumulate (2)
model(function(batch)
    local x = positions "wpe" { 12 } (embedding "wte" { 32, 64 } (batch.input))
    x = times(2) "h" { residual { layernorm "norm" {}, linear "up" { 448 }, gelu {}, linear "down" { 64 } } } (x)
    local function of(name) return linear(name) { 64 } (x) end
    x = x + linear "out" { 64, store = "in_out" } (attend { heads = 2, causal = true } (of "q", of "k", of "v"))
    x = x + linear "odd_out" { 64 } (tanh(linear "odd" { 40 } (x)))
    x = x + linear "thin_out" { 64 } (tanh(linear "thin" { 20 } (x)))
    x = x + linear "far_out" { 64 } (tanh(linear "far" { 1610 } (x)))
    x = x + linear "large_out" { 64 } (tanh(linear "large" { 8192 } (x)))
    return unembed { "wte" } (layernorm "last" {} (x))
end)
init       { { "*norm.weight", value = 1 }, { "last.weight", value = 1 }, { "*", normal = 0.2 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 3, seed = 5 }
precision  "bf16"
]]

local function letters()
    local bytes = {}
    for i = 1, 300 do bytes[i] = string.char(97 + (i * i + i // 5) % 26) end
    for byte = 0, 5 do bytes[#bytes + 1] = string.char(65 + byte) end
    return table.concat(bytes)
end

local function build(t, march, more, options)
    local programs, level = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/marches.lua")(t).level_of(march)
    t.write(programs.folder() .. "/data/panels.txt", letters())
    local p = programs.build("panels_" .. march:gsub("%-", "_"), SPEC .. (more or ""),
        { options = { "--march", march, table.unpack(options or {}) }, level = level })
    return programs, p
end

local function bits(t, march, more, options)
    local programs, p = build(t, march, more, options)
    return programs.dump(p, { "--cycles", 3 }), p, programs
end

-- Convolutions alone and in layers, one with a stride, so that its turned weight comes in four parts.
local PLANES = [[
data       { "csv", train = "turned.csv", target = "last", shuffle = false }
batch      (4)
accumulate (%d)
model (function(batch)
    local x = relu {} (conv2d "a" { 32, 3, padding = 1, stride = 2 } (reshape { 3, 8, 8 } (batch.input)))
    x = times(2) "h" { residual { batchnorm "norm" {}, relu {}, conv2d "in" { 32, 3, padding = 1, bias = false } } } (x)
    return linear "out" { 3 } (flatten {} (relu {} (conv2d "b" { 35, 3, stride = 2 } (x))))
end)
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 3, seed = 5 }
precision  "bf16"
]]

-- A program must compute with one thread and with three what another one does.
local function same_by_threads(programs, p, other)
    local expected = programs.dump(other, { "--cycles", 3, "--threads", 1 })
    for _, threads in ipairs { 1, 3 } do
        programs.identical(programs.dump(p, { "--cycles", 3, "--threads", threads }), expected,
            { "parameters", "state", "gradients" })
    end
end

for _, march in ipairs { "sapphirerapids", "x86-64-v4-bf16", "x86-64-v3" } do
    -- programs.lua, and a function (name, micro-steps, options of gagen ...) that builds a program of PLANES or of
    -- another spec and reads its step.c.
    local function builder(t, spec)
        local programs, level = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/marches.lua")(t).level_of(march)
        programs.write_sines("turned.csv", 48, 192)
        return programs, function(name, micro_steps, ...)
            local p = programs.build(("turned_%s_%s"):format(name, march:gsub("%-", "_")),
                (spec or PLANES):format(micro_steps),
                { options = { "--march", march, ... }, level = level })
            return p, host.read(p.folder .. "/step.c")
        end
    end

    add(march .. ": a gradient of one part is written in the order of the convolution's weight", function(t)
        local programs, build = builder(t)
        local whole, step = build("whole", 2)
        t.equal(select(2, step:gsub("conv2d_dw_whole_%d", "")), march ~= "x86-64-v3" and 3 or 0)
        local turned, other = build("apart", 2, "--without", "parts")
        t.equal(select(2, other:gsub("conv2d_dw_sum_%d", "")), 3)
        same_by_threads(programs, whole, turned)
    end)

    for _, precision in ipairs(march ~= "sapphirerapids" and { "f32", "bf16" } or {}) do
        add(march .. " " .. precision .. ": a gradient of one part by squares is written in the order of the weight",
            function(t)
            local spec, count = PLANES:gsub("batch      %(4%)", "batch (16)"):gsub('"bf16"', ('%q'):format(precision))
            t.equal(count, 1)
            local programs, build = builder(t, spec)
            local whole = build("squares_" .. precision, 1)
            t.equal(select(2, host.read(whole.folder .. "/kernels.c"):gsub(" in their order, by squares of [24] x", "")), 1)
            local apart = build("squares_apart_" .. precision, 1, "--without", "parts")
            same_by_threads(programs, whole, apart)
        end)
    end

    add(march .. ": the gradient of a convolution's results may come from a reshape with other axes", function(t)
        local spec, count = PLANES:gsub("\n    return [^\n]*", [[

    x = layernorm "last" {} (reshape { 7, 5 } (conv2d "b" { 35, 3, stride = 2 } (x)))
    return linear "out" { 3 } (flatten {} (x))]])
        t.equal(count, 1)
        local programs, build = builder(t, spec)
        local whole, step = build("reshaped", 2)
        t.equal(step:find "conv2d_dw_whole_%d" ~= nil, march ~= "x86-64-v3")
        local apart = build("reshaped_apart", 2, "--without", "parts")
        programs.identical(programs.dump(whole, { "--cycles", 2 }), programs.dump(apart, { "--cycles", 2 }))
    end)

    add(march .. ": weights of convolutions are turned once in an update", function(t)
        local programs, build = builder(t)
        local once, step = build("once", 3)
        for _, view in ipairs { "m->v.h_in_weight_turned_4x4", "m->v.b_weight_turned_4x4" } do
            t.equal(step:find(view, 1, true) ~= nil, march ~= "x86-64-v3", view)
        end
        local each, other = build("each", 3, "--without", "layout")
        t.equal(other:find "weight_turned_%d", nil)
        t.equal(select(2, build("alone", 1)):find "weight_turned_%d", nil)      -- an update of one micro-step
        for _, threads in ipairs { 1, 3 } do
            programs.identical(programs.dump(once, { "--cycles", 3, "--threads", threads }),
                programs.dump(each, { "--cycles", 3, "--threads", threads }), { "parameters", "state", "gradients" })
        end
    end)
end

for _, march in ipairs { "sapphirerapids", "x86-64-v4-bf16" } do
    add(march .. ": the bits are those of products that copy their panels", function(t)
        local found, p, programs = bits(t, march)
        local step = host.read(p.folder .. "/step.c")
        for _, view in ipairs { "up_weight_turned_panels", "up_weight_panels", "wte_weight_turned_panels",
            "wte_weight_panels", "out_weight_panels", "out_weight_turned_panels", "far_out_weight_turned_panels",
            "odd_weight_panels", "odd_out_weight_turned_panels", "thin_weight_in_out" } do
            t.contains(step, "m->v." .. (view:find "^up" and "h_" or "") .. view)
        end
        t.equal(step:find "thin_weight_%w*_?panels", nil)
        t.contains(host.read(p.folder .. "/kernels.c"), "put_pairs(to, block, true);")
        local copied, other = bits(t, march, nil, { "--without", "layout" })
        t.equal(host.read(other.folder .. "/step.c"):find "weight_%w*_?panels", nil)
        programs.identical(found, copied, { "parameters", "state", "gradients" })
    end)

    add(march .. ": with logits in runs of rows and layers computed again, too", function(t)
        local more = 'memory { logits = "chunked", recompute = { "h.*" } }\n'
        local found, _, programs = bits(t, march, more)
        programs.identical(found, (bits(t, march, more, { "--without", "layout" })),
            { "parameters", "state", "gradients" })
    end)
end

-- A first layer, whose weight has the panels of its forward product alone, several of them, the last one with fewer
-- terms, and more columns than a tile.
for _, march in ipairs { "sapphirerapids", "x86-64-v4-bf16" } do
    add(march .. ": several panels of several tiles, of the forward product alone", function(t)
        local programs, level = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/marches.lua")(t).level_of(march)
        programs.write_sines("wide.csv", 72, 1700)
        local function dump(name, ...)
            local p = programs.build("wide_" .. name .. "_" .. march:gsub("%-", "_"), [[
data       { "csv", train = "wide.csv", target = "last", shuffle = false }
batch      (36)
accumulate (2)
model      { linear "first" { 600 }, tanh {}, linear "out" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 3, seed = 5 }
precision  "bf16"
]], { options = { "--march", march, ... }, level = level })
            return programs.dump(p, { "--cycles", 3 }), host.read(p.folder .. "/step.c")
        end
        local panels, step = dump "panels"
        t.contains(step, "m->v.first_weight_turned_panels")
        programs.identical(panels, (dump("copied", "--without", "layout")), { "parameters", "state", "gradients" })
    end)
end

-- 96 rows are whole blocks. The products have GELU, its gradient, tanh, a residual or nothing behind them.
add("sapphirerapids: vectors finish a block beside the next one, for any number of threads", function(t)
    local rows, arrays = { "--set", "batch=8" }, { "parameters", "state", "gradients" }
    local function count(program)
        return select(2, host.read(program.folder .. "/kernels.c"):gsub("matrix_step%(a %+", ""))
    end
    local found, p, programs = bits(t, "sapphirerapids", nil, rows)
    t.equal(count(p), 12)
    for _, threads in ipairs { 3, 7 } do
        programs.identical(programs.dump(p, { "--cycles", 3, "--threads", threads }), found, arrays)
    end
    local copied, other = bits(t, "sapphirerapids", nil, { "--without", "layout", table.unpack(rows) })
    t.equal(count(other), 0)
    programs.identical(found, copied, arrays)
end)

add("the plan says which weights are panels", function(t)
    local _, p = build(t, "sapphirerapids")
    local programs = t.load("tests/lua/programs.lua")(t)
    local told = programs.gagen { "plan", p.spec, "--march", "sapphirerapids", "--why" }
    t.equal(told.status, 0, told.err)
    t.match(told.out, "\n  far.weight +views +products of each micro%-step read panels")
end)

return tests
