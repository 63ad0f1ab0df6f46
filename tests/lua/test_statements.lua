-- The functions of kernels.c. A value read twice is computed once, so the text grows with the number of ops; beyond
-- limits a chain of ops becomes several kernels. Layers of one shape share a function.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- kernels.c of a model that applies `op`, an expression over x, `count` times: to the batch, or to what is trained.
local function kernels_of(t, count, op, trained)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = programs.folder() .. ("/chain_%d_%s"):format(count, host.sha256(op .. tostring(trained)):sub(1, 8))
    t.write(folder .. "/chain.lua", table.concat({
        'data { "csv", train = "' .. t.root .. "/" .. programs.folder() .. '/data/tiny.csv", target = "last" }',
        "batch (8)",
        "model (function(batch)", "    local x = " .. (trained and "linear 'a' { 6 } (batch.input)" or "batch.input"),
        ("    for i = 1, %d do x = %s end"):format(count, op), '    return linear "b" { 3 } (x)', "end)",
        'loss "cross_entropy"', 'optimizer { "sgd", lr = 0.1 }', "train { updates = 1 }", "" }, "\n"))
    local result = programs.gagen { folder .. "/chain.lua", "-o", folder .. "/out" }
    t.equal(result.status, 0)
    return assert(host.read(folder .. "/out/kernels.c"))
end

for _, op in ipairs { "silu {} (x)", "leaky_relu {} (x)", "tanh(x) * x + x" } do
    add("twice as much of " .. op .. " is at most twice the text", function(t)
        for _, trained in ipairs { false, true } do
            local text, twice = kernels_of(t, 32, op, trained), kernels_of(t, 64, op, trained)
            assert(#twice < 2 * #text, ("%d bytes, then %d"):format(#text, #twice))
        end
    end)
end

add("a value read twice is computed once", function(t)
    local text = kernels_of(t, 2, "silu {} (x)")
    t.contains(text, "const real silu_out = x1 / (1.0f + ga_expf(-x1));\n            "
        .. "out[i] = silu_out / (1.0f + ga_expf(-silu_out));")
end)

add("a kernel reads at most 16 arrays, and has at most 64 statements", function(t)
    local sum = kernels_of(t, 1, "(function() local s = x * 0; for k = 1, 40 do s = s + linear('l' .. k) { 4 } (x) end "
        .. "return s end)()")
    t.contains(sum, "with_15")      -- behind the last product, whose result is the 16th
    assert(not sum:find("with_16", 1, true) and not sum:find("in17", 1, true), "a kernel with 17 inputs")
    local most = 0
    for body in kernels_of(t, 200, "silu {} (x)"):gmatch("for %(int i = from.-\n        }") do
        local _, lines = body:gsub("silu_out", "")
        most = math.max(most, lines // 3 + 1)
    end
    t.equal(most, 64)
end)

add("layers of one shape share a function, and a profile tells them apart", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("shared_functions", table.concat({
        'data { "csv", train = "tiny.csv", target = "last" }', "batch (6)",
        'model { linear "one" { 4 }, relu {}, linear "two" { 4 }, relu {}, linear "three" { 4 }, relu {}, '
            .. 'linear "last" { 3 } }',
        'loss "cross_entropy"', 'optimizer { "sgd", lr = 0.1 }', "train { updates = 5 }", "" }, "\n"), { probe = true })
    local fn, functions = {}, 0
    for _, kernel in ipairs(programs.plan(p).kernels) do fn[kernel.name] = kernel.fn end
    t.equal(fn.one_forward, fn.two_forward)
    t.equal(fn.two_forward, fn.three_forward)
    t.equal(fn.backward_one_weight, fn.backward_two_weight)
    assert(fn.last_forward ~= fn.one_forward, "a layer of another shape")
    for name in host.read(p.folder .. "/kernels.c"):gmatch("\nstatic void ([%w_]+)%(") do
        functions = functions + (name == fn.one_forward and 1 or 0)
    end
    t.equal(functions, 1)
    local profile = programs.train({ name = p.name, spec = p.spec, train = p.probe, folder = p.folder },
        { "--cycles", 2, "--profile" }).out
    for _, name in ipairs { "one_forward", "two_forward", "three_forward", "backward_two_weight", "update_all" } do
        t.equal(t.match(profile, "\n" .. name .. " +(%d+) "), "2", name)
    end
end)

add("a probe reports a step.c with other calls", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("edited_step", [[
data { "csv", train = "tiny.csv", target = "last" }
batch (6)
model { linear "one" { 4 }, relu {}, linear "last" { 3 } }
loss "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train { updates = 5 }
]], { probe = true, options = { "--without", "fusion" } })
    local text = host.read(p.folder .. "/step.c")
    local first, last = text:find("\n    relu_6x4[^\n]*")
    programs.edit(p, "step.c", text:sub(1, first - 1) .. text:sub(last + 1),
        { probe = true, level = "-O0 -Wno-unused-function" })
    local result = programs.train({ name = p.name, spec = p.spec, train = p.probe, folder = p.folder },
        { "--cycles", 1, "--profile", status = 1 })
    t.contains(result.err, "step.c was edited: its call 4 is of linear_")
end)

local statements = require "base.statements"
local expr = require "base.expr"

add("joined lists keep names distinct and read each other by name", function(t)
    local x = expr.var "x"
    local double = { { "double", x + x } }
    local list = statements.append(double, { { "double", x * 3 } }, { x = statements.value(double) })
    t.equal(list[2][1], "double_2")
    t.equal(expr.text(list[2][2]), "double * 3.0")
    t.equal(table.concat(statements.inputs(list), " "), "x")
    t.equal(statements.count(list), 2)
end)

add("a statement read once is inlined, an unread one is removed", function(t)
    local x = expr.var "x"
    local list = statements.tidy({ { "a", x + 1 }, { "unread", x * 9 }, { "b", expr.var "a" * 2 } }, 6)
    t.equal(#list, 1)
    t.equal(expr.text(list[1][2]), "(x + 1.0) * 2.0")
end)

return tests
