-- Gradients of emitted programs against finite differences, in f64, for every op of the catalog. A failure names
-- tensor, element and both values.
local tests = {}
local function add(name, f)
    tests[#tests + 1] = { name, function(t) f(t, t.load("tests/numeric/numeric.lua")(t)) end }
end

-- === ops =========================================================================================

local function of_kind(list, kind)
    local found = {}
    for _, sample in ipairs(list) do
        if sample.kind == kind then found[#found + 1] = sample end
    end
    return found
end

add("every op has a sample", function(t)
    local samples = t.load("tests/numeric/samples.lua")
    local list, missing = samples.collect(require "catalog.catalog".load())
    t.equal(missing, {}, "entries without a sample")
    assert(#list >= 12, "the catalog is nearly empty")
end)

-- Checks that the report has each sample: the linear layer before it got a gradient through it.
local function check_report(t, list, report)
    for _, sample in ipairs(list) do
        t.match(report, "op_" .. sample.name .. "%.before%.weight: ok, %d+ differences over 20")
        t.match(report, "op_" .. sample.name .. "%.after%.weight: ok")
    end
end

-- Several programs of some ops each: every difference computes a whole loss anew.
local PROGRAMS = 8

-- Without a pass the gradient is `expected`, which equals differences, to far more digits. With make test each program is
-- without one of the two.
local function check_without(t, numeric, list, case, expected, pass)
    case.options = { "--without", pass }
    local found, names = numeric.build(case):gradient(), {}
    for _, tensor in ipairs(found) do names[tensor.name] = true end
    for _, sample in ipairs(list) do assert(names["op_" .. sample.name .. ".before.weight"], sample.name) end
    t.near(numeric.distance(found, expected), 0, 1e-12)
end

for part = 1, PROGRAMS do
    add(("samples of all ops, part %d of %d, with all passes and without one"):format(part, PROGRAMS),
        function(t, numeric)
            local samples = t.load("tests/numeric/samples.lua")
            local list = samples.models(part, PROGRAMS)
            local case = samples.case(list)
            local program, report = numeric.differences(case)
            check_report(t, list, report)
            for i, pass in ipairs { "fusion", "layout" } do
                if t.all or (part + i) % 2 == 0 then
                    check_without(t, numeric, list, case, program:gradient(), pass)
                end
            end
        end)
end

add("samples of losses", function(t, numeric)
    local samples = t.load("tests/numeric/samples.lua")
    local list = of_kind(samples.collect(require "catalog.catalog".load()), "loss")
    assert(#list >= 2)
    for _, sample in ipairs(list) do
        local _, report = numeric.differences(samples.case { sample })
        t.match(report, "plain%.weight: ok")
    end
end)

add("operators with numbers, one operand twice, unread values", function(_, numeric)
    numeric.differences { batch = 6, accumulate = "(2)", rows = 12, model = [[(function(batch)
        local x = tanh(linear "a" { 5 } (batch.input))
        local y = 2 - x * x + (x + x) / 4 - 3 / (x + 5) - (-x) * 0.5 + x / x + (x * x + 1) ^ 1.5
        local unread = linear "unread" { 5 } (x) * y
        local z = linear "b" { 5 } (y)
        local unread_too = z - unread
        return linear "c" { 3 } (z * y - x)
    end)]] }
end)

-- PyTorch's gradients at 0, where these functions have a corner; the second operand of max and min is 0 too.
local AT_ZERO = {
    { "relu {} (x)", 0 }, { "leaky_relu { slope = 0.25 } (x)", 0.25 }, { "elu { 0.75 } (x)", 0.75 }, { "abs {} (x)", 0 },
    { "max (x, 0 * x)", 0.5 }, { "min (x, 0 * x)", 0.5 },
}

add("the gradient at a corner is PyTorch's", function(t)
    local programs, lines = t.load("tests/lua/programs.lua")(t), {}
    for i, case in ipairs(AT_ZERO) do
        lines[i] = ("local x = layernorm 'n%d' {} (batch.input - batch.input)\ny = y + %s"):format(i, case[1])
    end
    local p = programs.build("corners", ([[data { "csv", train = "tiny.csv", target = "last" }
        batch (2)
        model (function(batch)
            local y = 0 * batch.input
            %s
            return { y = y }
        end)
        loss (function(out) return out.y end)
        optimizer { "sgd", lr = 0.1 }
        precision "f64"
        train { updates = 1 }
    ]]):format(table.concat(lines, "\n")))
    local found = programs.tensors(programs.dump(p, { "--cycles", 1 }) .. "/gradients.safetensors")
    for i, case in ipairs(AT_ZERO) do
        local bias = found[("n%d.bias"):format(i)]
        t.near(bias.count * bias.values[1], case[2], 1e-15, case[1])
    end
end)

add("a model of named tensors, a function of two tensors", function(t, numeric)
    local _, report = numeric.differences { batch = 6, rows = 6, model = [[(function(batch)
        local x = tanh(linear "first" { 5 } (batch.input))
        local both = block "both" (function(a, b) return linear "one" { 4 } (a) * linear "two" { 4 } (b) end)
        return { pair = both(x, batch.input), alone = x }
    end)]], loss = [[(function(out, batch)
        return mean(out.pair * out.pair) + mean(out.alone * out.alone * out.alone)
    end)]] }
    for _, name in ipairs { "first.weight", "both.one.weight", "both.two.bias" } do
        t.contains("\n" .. report, "\n" .. name .. ": ok")
    end
end)

add("tensors of more than 64 elements are checked along directions", function(t, numeric)
    local _, report = numeric.differences { batch = 8, width = 9, rows = 8,
        model = ' { linear "a" { 11 }, tanh {}, linear "b" { 3 } }' }
    t.match(report, "a%.weight: ok, 24 differences over 99 elements")
end)

add("norms of more elements than the lanes of their sums, in a region and of a value used twice", function(_, numeric)
    numeric.differences { batch = 5, rows = 10, accumulate = "(2)", model = [[(function(batch)
        local x = linear "in" { 37 } (batch.input)
        x = times(2) "h" (function(x)
            return x + linear "fc" { 37 } (layernorm "ln" {} (x)) * rmsnorm "rms" { eps = 0.1 } (x)
        end) (x)
        local norm = layernorm "twice" { bias = false }
        return linear "out" { 3 } (norm(x) + tanh(norm(x * x)))
    end)]] }
end)

-- === the check can fail ==========================================================================

add("one element wrong by a millionth is found and named", function(t, numeric)
    local program = numeric.build { batch = 6, rows = 12, accumulate = "(2)",
        model = ' { linear "a" { 5 }, relu {}, linear "b" { 3 } }' }
    local result = program:check("gradients", nil, { "BREAK=7" })
    t.equal(result.status, 1, result.out)
    t.match(result.out, "a%.weight%[7%]: gradient %S+, differences %S+ %(h%) %S+ %(h/2%): wrong")
    t.match(result.out, "a%.weight: FAILED")
    t.match(result.out, "b%.weight: ok")
end)

add("a loop in which no gradient flows to the iteration before", function(t, numeric)
    local _, report = numeric.differences { model = [[(function(batch)
        local h = times(2) "t" (function(h)
            return where(gt(h, 0), 1, -1) * linear "v" { 6 } (batch.input)
        end) (linear "first" { 6 } (batch.input))
        return linear "out" { 3 } (h)
    end)]], optimizer = '{ "sgd", lr = 0.1, groups = { { "first.*", frozen = true }, { "t.0.*", frozen = true } } }' }
    t.contains(report, "t.1.v.weight: ok")
end)

add("a parameter that the loss does not depend on has no gradient", function(t, numeric)
    local _, report = numeric.differences { batch = 6, rows = 6, model = [[(function(batch)
        local a = linear "unused" { 3 } (batch.input)
        return linear "used" { 3 } (batch.input)
    end)]] }
    t.match(report, "unused%.weight: ok, 12 differences over 12 elements, 0 not 0")
    t.match(report, "\nunused%.bias")
    t.match(report, "^used%.weight: ok, 12 differences over 12 elements, 12 not 0")
end)

return tests
