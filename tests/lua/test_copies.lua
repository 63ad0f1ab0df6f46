-- Nodes that move no element have no kernel (passes/copies.lua): the same bits as with `--without fusion`, where they
-- have one.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- Read under another shape: the input, by a product and the gradient of its weight; a product's result, by a dropout and
-- by concat along another axis; a value inside a loop; the result of the loop, which is then transposed.
local SPEC = [[
data       { "csv", train = "copies.csv", target = "last", shuffle = false }
batch      (8)
accumulate (2)
model (function(batch)
    local planes = reshape { 2, 4, 3 } (batch.input)
    local y = linear "in" { 24 } (flatten {} (planes))
    local pairs = reshape { 12, 2 } (y)
    local more = dropout { 0.3 } (reshape { 3, 2 } (linear "more" { 6 } (flatten {} (pairs))))
    local both = concat { axis = 2 } (pairs, more)
    local h = times(2) "h" (function(v)
        return v + tanh {} (flatten {} (linear "fc" { 5 } (reshape { 6, 5 } (linear "wide" { 30 } (v)))))
    end) (flatten {} (both))
    return linear "out" { 3 } (flatten {} (linear "rows" { 7 } (transpose { 1, 3, 2 } (reshape { 6, 5 } (h)))))
end)
init       { { "*", normal = 0.3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 8, seed = 3 }
precision  "%s"
]]

local function build(t, precision, more)
    local programs = t.load("tests/lua/programs.lua")(t)
    programs.write_sines("copies.csv", 8 * 4, 24)
    return programs.build("copies_" .. precision .. (more and more[2] or ""), SPEC:format(precision),
        { options = more }), programs
end

for _, precision in ipairs { "f32", "f64", "bf16" } do
    add(precision .. ": the bits are those with copies", function(t)
        local p, programs = build(t, precision)
        local copied = build(t, precision, { "--without", "fusion" })
        local expected = programs.dump(copied, { "--cycles", 2, "--threads", 1 })
        for _, threads in ipairs { 1, 3 } do
            programs.identical(programs.dump(p, { "--cycles", 2, "--threads", threads }), expected,
                { "parameters", "gradients" })
        end
    end)
end

add("kernels read the batch, a product's result and that of a loop where they lie", function(t)
    local p = build(t, "f32")
    local step = host.read(p.folder .. "/step.c")
    t.contains(step, "(w, m->a.in_y, b->input,")
    t.contains(step, "(w, m->g.in_weight, m->a.d_in_y, b->input, adds)")
    t.contains(step, "(w, m->a.more_y, m->a.in_y,")
    t.contains(step, "(w, m->a.transpose_out, m->a.h_out)")
    local fields = host.read(p.folder .. "/model.h")
    for _, name in ipairs { "reshape_out", "reshape_out_2", "flatten_out", "reshape_out_4" } do
        assert(not fields:find("*" .. name .. ";", 1, true), name)
    end
end)

-- Chunked logits read rows of the last hidden value, and the output of a library has the shape of the spec.
local KEPT = [[
data       { "csv", train = "copies.csv", target = "last", shuffle = false }
batch      (8)
model      { reshape { 4, 6 }, flatten {}, %s }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 3, seed = 3 }
%s
]]

for _, case in ipairs {
    { "an output", 'linear "a" { 3 }, reshape { 3, 1 }, flatten {}', "" },
    { "what chunked logits read", 'linear "a" { 6 }, reshape { 2, 3 }, flatten {}, linear "b" { 3 }',
        'memory { logits = "chunked" }' },
} do
    add("the bits are those with copies: " .. case[1], function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        programs.write_sines("copies.csv", 8 * 4, 24)
        local function dump(name, options)
            return programs.dump(programs.build(name, KEPT:format(case[2], case[3]), { options = options }), {})
        end
        local name = "copies_" .. case[1]:gsub(" ", "_")
        programs.identical(dump(name), dump(name .. "_without", { "--without", "fusion" }),
            { "parameters", "gradients" })
    end)
end

return tests
