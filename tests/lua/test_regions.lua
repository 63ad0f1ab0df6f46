-- Regions, roles and optional passes in f64: the gradient against finite differences, and against
-- the gradient of the same model under other decisions. A model here has one array of gradients, in
-- the order of its parameters, that does not depend on A, on threads or on what a pass keeps.
local tests = {}
local function add(name, f)
    tests[#tests + 1] = { name, function(t) f(t, t.load("tests/numeric/numeric.lua")(t)) end }
end

-- All features in one model: a layer made outside and used in each iteration and after the loop (tied), an outer tensor
-- read in the body, a residual, a block, an argument that is read three times.
local MODEL = [[(function(batch)
    local tied = linear "tied" { 6 }
    local outer = tanh(linear "outer" { 6 } (batch.input))
    local x = tied(outer)
    x = times(3) "h" (function(x)
        local y = block "mlp" (function(x)
            return linear "down" { 6 } (gelu {} (linear "up" { 7 } (x)))
        end) (x)
        y = residual { tanh {}, linear "side" { 6 } } (y)
        return tanh(tied(x) * 0.5 + y * outer + x)
    end) (x)
    return linear "last" { 3 } (tied(x) + outer)
end)]]

-- 12 rows in A micro-steps.
local function case(accumulate, change)
    local a = tonumber(accumulate:match("%d+"))
    local c = { model = MODEL, accumulate = accumulate, batch = 12 // a, rows = 12 }
    for _, key in ipairs { "more", "options", "optimizer", "model" } do
        if change and change[key] then c[key] = change[key] end
    end
    return c
end

local NAMES = { "tied.weight", "outer.weight", "h.0.mlp.up.weight", "h.1.mlp.down.bias",
    "h.2.side.weight", "last.bias" }

for _, accumulate in ipairs { "(1)", "(2)", "(3)", "{ 6, unroll = 3 }" } do
    add("every parameter, accumulate " .. accumulate, function(t, numeric)
        local program, report = numeric.differences(case(accumulate))
        for _, name in ipairs(NAMES) do t.contains("\n" .. report, "\n" .. name .. ": ok") end
        t.near(numeric.distance(program:gradient(), program:gradient { "THREADS=3" }), 0, 0)
    end)
end

add("norm, clip factor and true weight at the boundary", function(_, numeric)
    for _, limit in ipairs { "0.01", "100" } do
        numeric.differences(case("(2)", { more = "clip(" .. limit .. ")",
            model = ' { linear "a" { 5 }, tanh {}, linear "b" { 3 } }' }), { "CLIP=" .. limit })
    end
end)

add("the number of micro-steps does not matter", function(t, numeric)
    local whole = numeric.build(case("(1)")):gradient()
    for _, accumulate in ipairs { "(2)", "(3)", "(12)" } do
        local parts = numeric.build(case(accumulate)):gradient()
        t.near(numeric.distance(whole, parts), 0, 1e-13)
    end
end)

-- Builds with and without the change. The gradient of the first agrees with differences: see "every parameter".
local function both(numeric, accumulate, change)
    local plain, changed = numeric.build(case(accumulate)), numeric.build(case(accumulate, change))
    return plain:gradient(), changed:gradient(), plain, changed
end

for _, globs in ipairs { '"*"', '"h_*"', '"h.*"', '"*gelu*", "*tanh*"' } do
    add("recompute " .. globs .. ": the same bits", function(t, numeric)
        local more = "memory { recompute = { " .. globs .. " } }"
        local kept, again, _, program = both(numeric, "(3)", { more = more })
        t.contains(assert(host.read(program.folder .. "/step.c")), "computed again, not kept")
        t.near(numeric.distance(kept, again), 0, 0)
    end)
end

for _, pass in ipairs { "layout", "fusion" } do
    add("without " .. pass, function(t, numeric)
        local with, without, a, b = both(numeric, "(2)", { options = { "--without", pass } })
        assert(host.read(a.folder .. "/kernels.c") ~= host.read(b.folder .. "/kernels.c"),
            "the pass changes nothing here")
        t.near(numeric.distance(with, without), 0, 1e-15)
    end)
end

add("without layout and fusion, with everything recomputed", function(t, numeric)
    local with, without = both(numeric, "(2)", { more = 'memory { recompute = { "*" } }',
        options = { "--without", "layout", "--without", "fusion" } })
    t.near(numeric.distance(with, without), 0, 1e-15)
end)

-- Forms of a body; x is the value before the loop and after it.
local BODIES = {
    { "list", 'x = times(COUNT) "h" { linear "a" { 6 }, tanh {}, linear "b" { 6 } } (x)' },
    { "residual", 'x = times(COUNT) "h" { residual { tanh {}, linear "a" { 6 } } } (x)' },
    { "input_read_later", [[
        local y = times(COUNT) "h" { linear "a" { 6 }, tanh {} } (x)
        x = x * y + tanh(x)]] },
    { "layer_of_before", [[
        local a = linear "a" { 6 }
        x = a(x)
        x = times(COUNT) "h" (function(x) return tanh(a(x)) end) (x)]] },
    { "one_gradient_of_three", [[
        local o = tanh(x)
        local p = linear "p" { 6 } (x)
        x = times(COUNT) "h" (function(x) return tanh(linear "a" { 6 } (x)) * o end) (x)
        x = x + o + p]] },
    { "no_parameters", 'x = times(COUNT) "h" { tanh {} } (x)' },
    { "argument_returned", 'x = times(COUNT) "h" { scale { 1 } } (x)' },
    { "outer_function", [[
        local o = tanh(x)
        x = times(COUNT) "h" (function(x) return linear "a" { 6 } (x) + tanh(o) * x end) (x)]] },
    { "over_the_batch", [[
        local y = times(COUNT) "h" { linear "a" { 4 }, tanh {} } (batch.input)
        x = x * linear "b" { 6 } (y)]] },
    { "moved", [[
        local o = reshape { 2, 3 } (tanh(x))
        x = times(COUNT) "h" (function(x)
            local y = transpose { 1, 3, 2 } (reshape { 3, 2 } (linear "a" { 6 } (x)))
            y = y * o + reshape { 2, 1 } (sum { axis = 3 } (o))
            local z = concat { axis = 2 } (y, reshape { 1, 3 } (max { axis = 2 } (y)))
            return flatten {} (slice { axis = 2, from = 2 } (z)) + softmax {} (x)
        end) (x)]] },
    { "outer_argument", [[
        local o = linear "o" { 6 } (x)
        x = times(COUNT) "h" (function(x)
            return block "mixed" (function(a, b) return tanh(linear "a" { 6 } (a)) + b end) (x, o)
        end) (x)]] },
    { "looked_up", [[
        local words = embedding "words" { 4, 6 }
        x = times(COUNT) "h" (function(x)
            local own = embedding "own" { 4, 6, padding = 3 } (batch.ids)
            return x + pick { axis = 2, index = 1 } (words(batch.ids)) * mean { axis = 2 } (own)
        end) (x)
        x = x + linear "c" { 6 } (linear "d" { 4, store = "in_out" } (x))]] },
    { "two_loops", [[
        local o = x
        x = times(COUNT) "h" { linear "a" { 6 }, tanh {} } (x)
        local p = x
        x = times(2) "k" (function(x) return tanh(linear "b" { 6 } (x) * o + p) end) (x)
        x = x + o]] },
}

-- Checks the gradients of a program with the bodies `first` to `last`.
local function check_bodies(t, numeric, count, first, last)
    local branches = {}
    for i = first, last do
        branches[#branches + 1] = ([[
    block "NAME" (function(x)
        x = linear "first" { 6 } (x)
        BODY
        return linear "last" { 3 } (x)
    end) (batch.input)]]):gsub("%u%u%u+", { NAME = BODIES[i][1], BODY = BODIES[i][2] }):gsub("COUNT", count)
    end
    local _, report = numeric.differences { batch = 6, rows = 12, accumulate = "(2)", ids = true,
        model = "(function(batch)\n    return\n" .. table.concat(branches, " +\n") .. "\nend)" }
    for i = first, last do t.contains("\n" .. report, "\n" .. BODIES[i][1] .. ".first.weight: ok") end
end

-- Several programs of some bodies each: every difference computes a whole loss anew.
local PER_PROGRAM = 5
for _, count in ipairs { 1, 2, 3 } do
    add("bodies of times(" .. count .. ")", function(t, numeric)
        if count == 2 then t.long() end
        for first = 1, #BODIES, PER_PROGRAM do
            check_bodies(t, numeric, count, first, math.min(first + PER_PROGRAM - 1, #BODIES))
        end
    end)
end

-- times(n) is n copies written out: the same numbers, with the parameters of the copies.
add("a loop equals its copies written out", function(t, numeric)
    local tail = 'linear "last" { 3 } } '
    local head = ' { linear "first" { 6 }, '
    local function copy(i)
        return ('block "h.%d" { residual { linear "a" { 6 }, tanh {} } }, '):format(i)
    end
    local loop = head .. 'times(3) "h" { residual { linear "a" { 6 }, tanh {} } }, ' .. tail
    local flat = head .. copy(0) .. copy(1) .. copy(2) .. tail
    local rolled_up = numeric.build(case("(2)", { model = loop })):gradient()
    local written_out = numeric.build(case("(2)", { model = flat })):gradient()
    t.near(numeric.distance(rolled_up, written_out), 0, 0)
end)

add("a layer made outside a loop is one layer, also if it is only applied inside", function(t, numeric)
    local _, report = numeric.differences { model = [[(function(batch)
        local tied = linear "tied" { 6 }
        local x = tanh(linear "in" { 6 } (batch.input))
        x = times(3) "h" (function(x) return tanh(tied(x) + linear "own" { 6 } (x)) end) (x)
        return linear "last" { 3 } (x)
    end)]], accumulate = "(2)", batch = 6, rows = 12 }
    t.contains("\n" .. report, "\ntied.weight: ok")
    t.contains("\n" .. report, "\nh.2.own.weight: ok")
    assert(not report:find("h.0.tied", 1, true))
end)

return tests
