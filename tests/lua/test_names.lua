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
    { "c", "m->w.h_a_weight + l * H_PARAMS", "real *const d_k_in = m->a.d_k_in + ((2 - l) & 1) * D_K_IN;" },
    { "cuda", "m->w.h_a_weight + iteration(l, H_PARAMS)",
        "const ga_address d_k_in = m->a.d_k_in + iteration((2 - l) & 1, D_K_IN);" },
}

for _, case in ipairs(TARGETS) do
    local target, weight, handed_on = table.unpack(case)
    add(target .. ": fields, distances and values handed on have names", function(t)
        local show = show_of(t, "h", "k")
        local step = show("step.c", "--target", target)
        t.contains(step, weight)
        t.contains(step, handed_on)
        assert(not step:find("%(size_t%)%d"), "a distance is a number")
        assert(not step:find("m%->[wa]%.body_"), "the layer of all parameters is repeated")
        for line in step:gmatch("[^\n]+") do assert(#line <= 110 or line:find("^ %* From"), line) end
        local header = show("model.h", "--target", target)
        t.contains(header, "static const size_t H_PARAMS = 64;")
        t.contains(header, "static const size_t K_PARAMS = 64;")
        t.contains(show("memory.c", "--target", target), '"body.h.%d.a.weight"')
        t.contains(show("probes.c", "--target", target), '"d_body_k_in.%d"')
    end)
end

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

return tests
