-- Pointwise nodes in the kernels of products (passes/fusion.lua): the same bits as with `--without fusion`, in each
-- type, on blocks, strips and plain vectors, with rests of tiles, and with any number of threads.
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

-- The program of a type for a profile; more: options of gagen.
local function build(t, precision, march, more)
    local programs, options = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/marches.lua")(t).options(march)
    programs.write_sines("behind.csv", 37 * 4, 40)
    local name = ("behind_%s_%s%s"):format(precision, march:gsub("%-", "_"), more and "_without" or "")
    return programs.build(name, SPEC:format(precision), { level = t.quick .. " " .. options,
        options = table.move(more or {}, 1, #(more or {}), 3, { "--march", march }) }), programs
end

for _, case in ipairs { { "f32", "generic" }, { "f32", "sapphirerapids" }, { "bf16", "sapphirerapids" },
    { "bf16", "x86-64-v3" }, { "f64", "x86-64-v3" }, { "bf16", "x86-64-v4-bf16" }, { "f16", "x86-64-v3" } } do
    local precision, march = case[1], case[2]
    add(("%s on %s: the bits are those without fusion"):format(precision, march), function(t)
        if march == "x86-64-v4-bf16" or precision == "f16" then t.long() end
        local p, programs = build(t, precision, march)
        local plain = build(t, precision, march, { "--without", "fusion" })
        local expected = programs.dump(plain, { "--cycles", 2, "--threads", 1 })
        for _, threads in ipairs { 1, 3 } do
            programs.identical(programs.dump(p, { "--cycles", 2, "--threads", threads }), expected,
                { "parameters", "gradients" })
        end
    end)
end

add("the plan says which nodes are behind a product, and the kernels are named after them", function(t)
    local p, programs = build(t, "f32", "generic")
    local names = {}
    for _, kernel in ipairs(programs.plan(p).kernels) do names[#names + 1] = kernel.fn end
    names = table.concat(names, " ")
    for _, name in ipairs { "linear_in_out_gelu_37x70x40", "linear_in_out_tanh_37x101x70",
        "linear_in_out_add_37x70x101", "linear_in_out_relu_37x75x70", "linear_dx_tanh_dx_37x101x70" } do
        t.contains(names, name)
    end
    local plain = build(t, "f32", "generic", { "--without", "fusion" })
    t.contains(host.read(plain.folder .. "/kernels.c"), "linear_in_out_37x70x40(")
    t.equal(host.read(plain.folder .. "/kernels.c"):find("with_1", 1, true), nil)
end)

add("a product's own result stays where its gradient reads it", function(t)
    local step = host.read(build(t, "f32", "generic").folder .. "/step.c")
    t.contains(step, "m->a.in_y")
    assert(not step:find("m->a.up_y", 1, true), "tanh's gradient reads its result alone")
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
