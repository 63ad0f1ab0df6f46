-- Names in the emitted C: fields without the blocks common to all parameters, distances between iterations, carried
-- values. Texts for users keep the names of the spec.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- The part of the model between the loops and the last layer.
local BETWEEN = { inside = ",", alone = " },", apart = ' }, block "head" {' }

-- show(file, ...): a file of the program of a model of two loops, `first` and `second`; all layers lie in "body", but
-- for the last one, which is "alone", or "apart" in a block of its own.
local function show_of(t, first, second, last)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = ("%s/names_%s_%s/names.lua"):format(programs.folder(), first, last or "inside")
    local loops = ('linear "in" { 6 }, times(3) "%s" { residual { tanh {}, linear "a" { 6 } } }, '
        .. 'times(2) "%s" { linear "b" { 6 }, tanh {} }'):format(first, second)
    t.write(path, table.concat({
        ('data { "csv", train = "%s/%s/data/tiny.csv", target = "last" }'):format(t.root, programs.folder()), "batch (8)",
        ('model { block "body" { %s%s linear "out" { 3 } }%s'):format(loops, BETWEEN[last or "inside"],
            last == "alone" and "" or " }"),
        'loss "cross_entropy"', 'optimizer { "adamw", lr = 0.1 }', "train { updates = 3 }", "" }, "\n"))
    return function(file, ...)
        local result = programs.gagen { "show", path, file, ... }
        t.equal(result.status, 0, result.err)
        return result.out
    end
end

local TARGETS = {
    { "c", "m->w.h_a_weight + l * H_PARAMS",
        "real *const d_k_in = m->a.d_k_in + ((K_LAYERS - l) & 1) * D_K_IN; // for the next iteration" },
    { "cuda", "m->w.h_a_weight + iteration(l, H_PARAMS)",
        "// for the next iteration\n        const ga_address d_k_in = m->a.d_k_in + iteration((K_LAYERS - l) & 1, D_K_IN);" },
}

for _, case in ipairs(TARGETS) do
    local target, weight, handed_on = table.unpack(case)
    add(target .. ": fields, distances and values handed on have names", function(t)
        local show = show_of(t, "h", "k")
        local step = show("step.c", "--target", target)
        t.contains(step, weight)
        t.contains(step, handed_on)
        local forward, backward = step:match "^(.-\nstatic void backward)(.*)$"
        assert(not forward:find("what the forward pass", 1, true))
        t.contains(backward, "// what the forward pass gave to the next iteration\n")
        assert(not step:find("%(size_t%)%d"), "a distance is a number")
        assert(not step:find("m%->[wa]%.body_"), "the layer of all parameters is repeated")
        for line in step:gmatch("[^\n]+") do assert(#line <= 110 or line:find("^ %* From"), line) end
        local header = show("model.h", "--target", target)
        t.contains(header, "static const size_t H_PARAMS = 64;")
        t.contains(header, "static const size_t K_PARAMS = 64;")
        t.contains(step, "for (int l = 0; l < H_LAYERS; l++) { // body.h")
        t.contains(step, "for (int l = K_LAYERS - 1; l >= 0; l--) { // body.k")
        t.contains(header, "H_LAYERS = 3, /* of body.h */")
        t.contains(header, "K_LAYERS = 2, /* of body.k */")
        t.contains(show("memory.c", "--target", target), '"body.h.%d.a.weight"')
        t.contains(show("probes.c", "--target", target), '"d_body_k_in.%d"')
    end)
end

-- The calls of the boundary that update: the function, the range and its layer.
local function updates_of(text)
    local list = {}
    for name, range in text:gmatch("\n +(update_[%w_]+)%([^;]-&RANGES%.([%w_]+, [l0]),") do
        list[#list + 1] = name .. " " .. range
    end
    return list
end

for _, case in ipairs { { "c", "update.c" }, { "cuda", "step.c" } } do
    local target, file = table.unpack(case)
    add(target .. ": updates are called after their groups and go over ranges of one table", function(t)
        local text = show_of(t, "h", "k")(file, "--target", target, "--set", 'optimizer={ "adamw", lr = 0.1, groups = '
            .. '{ { rank = 1, weight_decay = 0 }, { "*.in.*", lr_scale = 2 }, { "*k.*", lr_scale = 3 } } }')
        t.equal(updates_of(text), { "update_in in_weight, 0", "update_vectors in_bias, 0",
            "update_matrices h_a_weight, l", "update_vectors h_a_bias, l", "update_vectors k_b_bias, l",
            "update_k k_b_weight, l", "update_matrices out_weight, 0", "update_vectors out_bias, 0" })
        t.contains(text, "/* body.h.*.a.weight */")
    end)
end

add("numbers of the update that groups have in common are computed once", function(t)
    local show = show_of(t, "h", "k")
    local function assigned(file)
        local list = {}
        for name in show(file, "--set", 'optimizer={ "adamw", lr = 0.1, groups = { { rank = 1, weight_decay = 0.5 }, '
            .. '{ "*k.*", lr_scale = 2 } } }'):gmatch("\n    s%->([%w_]+) = %(real%)%(") do list[#list + 1] = name end
        return list
    end
    t.equal(assigned "update.c", { "decay", "step_size", "v_scale", "decay_vectors", "decay_k", "step_size_k" })
end)

add("a layer outside keeps long names, and no distance has the name of another constant", function(t)
    local header = show_of(t, "trained", "at", "apart")("model.h")
    t.contains(header, "real *body_trained_a_weight;")
    t.contains(header, "static const size_t BODY_TRAINED_PARAMS = 64;")
    header = show_of(t, "trained", "at")("model.h")
    t.contains(header, "real *trained_a_weight;")
    t.contains(header, "static const size_t LOOP_TRAINED_PARAMS = 64;")
end)

add("a layer beside the common block changes no other name", function(t)
    local header = show_of(t, "h", "k", "alone")("model.h")
    t.contains(header, "real *h_a_weight;")
    t.contains(header, "real *out_weight;")
end)

-- Two layers of one input are one product, whose result the gradient of their pointwise ops reads in two places.
add("an element of a pointwise kernel has the number of its array", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/names_elements/names.lua"
    t.write(path, table.concat({
        ('data { "csv", train = "%s/%s/data/tiny.csv", target = "last" }'):format(t.root, programs.folder()),
        "batch (8)", [[model(function(batch)
            local x = linear "in" { 16 } (batch.input)
            return linear "out" { 3 } (silu {} (linear "gate" { 16 } (x)) * linear "up" { 16 } (x))
        end)]], 'loss "cross_entropy"', 'optimizer { "sgd", lr = 0.1 }', "train { updates = 3 }", "" }, "\n"))
    local text, found = programs.gagen({ "kernels", path, "--target", "c" }).out, {}
    for element, array in text:gmatch "const real (x%d+b?) = [^;\n]-(in%d+)%[" do
        t.equal(element:match "%d+", array:match "%d+", element)
        found[#found + 1] = element
    end
    t.contains(table.concat(found, " "), "x1 x2 x2b")
end)

-- Kernels of the same result, of other channels, taps and strides.
add("kernels of convolutions and rotary positions are named by what differs", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/names_conv/names.lua"
    t.write(path, table.concat({
        ('data { "csv", train = "%s/%s/data/tiny.csv", target = "last" }'):format(t.root, programs.folder()),
        'name "conv"', "batch (8)", [[model { linear "in" { 72 }, reshape { 2, 6, 6 }, conv2d "a" { 3, 3, padding = 1 },
            conv2d "b" { 3, 3, padding = 1 }, conv2d "c" { 3, { 5, 1 }, padding = { 2, 0 } }, conv2d "d" { 3, 2, stride = 2 },
            conv2d "e" { 3, 3, padding = 1, groups = 3 }, reshape { 3, 9 }, linear "f" { 6 },
            rotary { heads = 1 }, flatten {}, linear "out" { 3 } }]],
        'loss "cross_entropy"', 'optimizer { "sgd", lr = 0.1 }', "train { updates = 3 }", "" }, "\n"))
    local text = programs.gagen({ "kernels", path, "--target", "c" }).out
    for _, name in ipairs { "conv2d_8x3x6x6_2x3x3", "conv2d_8x3x6x6_3x3x3", "conv2d_8x3x6x6_3x5x1",
        "conv2d_8x3x3x3_3x2x2_by_2", "conv2d_8x3x3x3_1x3x3", "conv2d_dx_8x3x6x6_3x2x2_by_2", "rotary_8x3x6",
        "rotary_8x3x6_back" } do
        t.contains(text, " " .. name .. "(")
    end
    for name in text:gmatch "static void ([%w_]+)%(" do
        local named = name:find "^conv2d_" or name:find "^rotary"
        assert(not (named and name:find "x%d_%d$"), name)
    end
end)

return tests
