-- Layers that move values, reduce axes or look up rows: their values against index arithmetic, on one micro-batch of a
-- program with probes; tied embeddings against untied ones.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local ROWS = 2

local function spec(model, more)
    return ([[
data      { "tensors", train = "tiny.safetensors" }
batch     (%d)
accumulate (2)
precision "f64"
model(function(batch)
%s
end)
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 4, seed = 5 }
%s]]):format(ROWS, model, more or "")
end

-- === values against index arithmetic =============================================================

-- A function of indexes from 1 over values that lie row by row.
local function indexed(values, shape)
    return function(...)
        local at = 0
        for axis, i in ipairs { ... } do
            assert(i >= 1 and i <= shape[axis])
            at = at * shape[axis] + i - 1
        end
        return values[at + 1]
    end
end

-- f(i, j, ...) for all indexes of a shape, the last one fastest.
local function all(shape, f)
    local values = {}
    local function walk(axis, ...)
        if axis > #shape then
            values[#values + 1] = f(...)
            return
        end
        for i = 1, shape[axis] do
            local list = { ... }
            list[#list + 1] = i
            walk(axis + 1, table.unpack(list))
        end
    end
    walk(1)
    return values
end

local function sum(n, f)
    local total = 0
    for i = 1, n do total = total + f(i) end
    return total
end

local function greatest(n, f)
    local best = f(1)
    for i = 2, n do best = math.max(best, f(i)) end
    return best
end

-- The value v is (2, 3, 4) behind the rows. Each case: its layer, the end of the name of its result,
-- the shape behind the rows, and a function of v and the indexes.
local CASES = {
    { "transpose { 1, 4, 2, 3 } (v)", "transpose_out", { 4, 2, 3 },
        function(v, b, i, j, k) return v(b, j, k, i) end },
    { "transpose { 1, 3, 2, 4 } (v)", "transpose_out", { 3, 2, 4 },
        function(v, b, i, j, k) return v(b, j, i, k) end },
    { "slice { axis = 3, from = 2, to = 3 } (v)", "slice_out", { 2, 2, 4 },
        function(v, b, i, j, k) return v(b, i, j + 1, k) end },
    { "slice { axis = 4, from = 3 } (v)", "slice_out", { 2, 3, 2 },
        function(v, b, i, j, k) return v(b, i, j, k + 2) end },
    { "pick { axis = 2, index = 2 } (v)", "pick_out", { 3, 4 },
        function(v, b, j, k) return v(b, 2, j, k) end },
    { "concat { axis = 3 } (v, slice { axis = 3, to = 1 } (v), v)", "concat_out_2", { 2, 7, 4 },
        function(v, b, i, j, k) return v(b, i, j > 3 and j < 5 and 1 or j > 4 and j - 4 or j, k) end },
    { "reshape { 6, -1 } (transpose { 1, 3, 2, 4 } (v))", "reshape_out", { 6, 4 },
        function(v, b, i, k) return v(b, (i - 1) % 2 + 1, (i - 1) // 2 + 1, k) end },
    { "sum { axis = 3 } (v)", "sum_out", { 2, 4 },
        function(v, b, i, k) return sum(3, function(j) return v(b, i, j, k) end) end },
    { "mean { axis = 2 } (v)", "mean_out", { 3, 4 },
        function(v, b, j, k) return sum(2, function(i) return v(b, i, j, k) end) / 2 end },
    { "mean(v)", "mean_out", { 2, 3 },
        function(v, b, i, j) return sum(4, function(k) return v(b, i, j, k) end) / 4 end },
    { "max { axis = 4 } (v)", "max_out", { 2, 3 },
        function(v, b, i, j) return greatest(4, function(k) return v(b, i, j, k) end) end },
    { "max(v)", "max_out", { 2, 3 },
        function(v, b, i, j) return greatest(4, function(k) return v(b, i, j, k) end) end },
    { "max { axis = 2 } (v)", "max_out", { 3, 4 },
        function(v, b, j, k) return math.max(v(b, 1, j, k), v(b, 2, j, k)) end },
    { "softmax {} (v)", "softmax_out", { 2, 3, 4 }, function(v, b, i, j, k)
        return math.exp(v(b, i, j, k)) / sum(4, function(c) return math.exp(v(b, i, j, c)) end)
    end },
    { "log_softmax(v)", "log_softmax_out", { 2, 3, 4 }, function(v, b, i, j, k)
        return v(b, i, j, k) - math.log(sum(4, function(c) return math.exp(v(b, i, j, c)) end))
    end },
    { "v * reshape { 2, 1, 4 } (pick { axis = 3, index = 2 } (v))", "mul_out", { 2, 3, 4 },
        function(v, b, i, j, k) return v(b, i, j, k) * v(b, i, 2, k) end },
    { "reshape { 1, 3, 1 } (pick { axis = 2, index = 1 } (slice { axis = 4, to = 1 } (v))) - v", "sub_out",
        { 2, 3, 4 }, function(v, b, i, j, k) return v(b, 1, j, 1) - v(b, i, j, k) end },
    { "reshape { 2, 1, 4 } (max { axis = 3 } (v)) + reshape { 2, 3, 1 } (max { axis = 4 } (v))", "add_out",
        { 2, 3, 4 }, function(v, b, i, j, k)
            return greatest(3, function(c) return v(b, i, c, k) end)
                + greatest(4, function(c) return v(b, i, j, c) end)
        end },
    { "where(gt(v, 0.1), v, 2 * v)", "where_out", { 2, 3, 4 }, function(v, ...)
        return (v(...) > 0.1 and 1 or 2) * v(...)
    end },
    { "max(v, 0.3 - v) - min(v, tanh(v))", "sub_out_2", { 2, 3, 4 }, function(v, ...)
        local x = v(...)
        return math.max(x, 0.3 - x) - math.min(x, 1 - 2 / (math.exp(2 * x) + 1))
    end },
    { "le(v, 0.2) + 2 * lt(v, 0.3) + 4 * ge(v, 0.4) + 8 * eq(v, v)", "add_out_3", { 2, 3, 4 },
        function(v, ...)
            local x = v(...)
            return (x <= 0.2 and 1 or 0) + (x < 0.3 and 2 or 0) + (x >= 0.4 and 4 or 0) + 8
        end },
    { "clamp { min = -0.2, max = 0.5 } (v) + square(v)", "add_out", { 2, 3, 4 }, function(v, ...)
        return math.max(-0.2, math.min(0.5, v(...))) + v(...) ^ 2
    end },
    { "softplus { 2 } (v) - elu { 0.5 } (v)", "sub_out", { 2, 3, 4 }, function(v, ...)
        local x = v(...)
        return math.log(1 + math.exp(2 * x)) / 2 - (x > 0 and x or 0.5 * (math.exp(x) - 1))
    end },
}

-- Each case is a block read by a product, so that it is not fused.
local function model_of_cases()
    local lines = { '    local v = reshape { 2, 3, 4 } (linear "base" { 24 } (batch.input))', "    local y = 0" }
    for i, case in ipairs(CASES) do
        lines[#lines + 1] = ([[
    y = y + block "case%d" (function(v)
        return linear "out" { 3 } (flatten {} (linear "in" { 2 } (%s)))
    end) (v)]]):format(i, case[1])
    end
    lines[#lines + 1] = "    return y"
    return table.concat(lines, "\n")
end

add("values of layers that move and reduce equal index arithmetic", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("shapes", spec(model_of_cases()), { probe = true, options = { "--without", "fusion" } })
    p.train = p.probe
    local step = programs.tensors(programs.dump(p, { "--cycles", 1 }) .. "/micro-1.safetensors")
    local v = indexed(step.base_y.values, { ROWS, 2, 3, 4 })
    for i, case in ipairs(CASES) do
        local name = ("case%d_%s"):format(i, case[2])
        local found = assert(step[name], "no " .. name).values
        local expected = all({ ROWS, table.unpack(case[3]) }, function(...) return case[4](v, ...) end)
        t.equal(#found, #expected, case[1])
        for k, value in ipairs(expected) do t.near(found[k], value, 1e-14 * (1 + math.abs(value))) end
    end
end)

-- === embeddings ==================================================================================

local function sorted(list)
    table.sort(list, function(a, b) return a[1] < b[1] end)
    return list
end

-- Trains one cycle from these values and returns the gradients.
local function gradients(t, programs, p, values)
    local file, list = t.temp() .. "/values.safetensors", {}
    for name, tensor in next, values do list[#list + 1] = { name, "F64", tensor.shape, tensor.values } end
    t.write(file, t.load("tests/numeric/rows.lua").file(sorted(list)))
    return programs.tensors(programs.dump(p, { "--cycles", 1, "--init", file }) .. "/gradients.safetensors")
end

local function waves(n, phase)
    local values = {}
    for i = 1, n do values[i] = math.sin(phase + 1.7 * i) end
    return values
end

local BODY = [[
    local x = positions "wpe" { ROWS } (embedding "wte" { 5, 6 } (batch.ids))
    x = times(2) "h" { residual { tanh {}, linear "a" { 6, store = "in_out" } } } (x)
    return HEAD (pick { axis = 2, index = 3 } (x))]]

local function body(rows, head) return (BODY:gsub("ROWS", rows):gsub("HEAD", head)) end

local VALUES = {
    ["wte.weight"] = { shape = { 5, 6 }, values = waves(30, 0) },
    ["wpe.weight"] = { shape = { 3, 6 }, values = waves(18, 1) },
    ["h.0.a.weight"] = { shape = { 6, 6 }, values = waves(36, 2) }, ["h.0.a.bias"] = { shape = { 6 }, values = waves(6, 3) },
    ["h.1.a.weight"] = { shape = { 6, 6 }, values = waves(36, 4) }, ["h.1.a.bias"] = { shape = { 6 }, values = waves(6, 5) },
}

add("the gradient of a tied table is the sum of those of two", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local tied = programs.build("shapes_tied", spec(body(3, 'unembed { "wte" }')))
    local apart = programs.build("shapes_apart", spec(body(3, 'linear "head" { 5, bias = false }')))
    local one = gradients(t, programs, tied, VALUES)
    local more = {}
    for name, tensor in next, VALUES do more[name] = tensor end
    more["head.weight"] = VALUES["wte.weight"]
    local two = gradients(t, programs, apart, more)
    for name, tensor in next, one do
        for i, value in ipairs(tensor.values) do
            local expected = two[name].values[i]
            if name == "wte.weight" then
                assert(two["head.weight"].values[i] ~= 0)
                expected = expected + two["head.weight"].values[i]
            end
            t.near(value, expected, 1e-14 * (1 + math.abs(expected)))
        end
    end
end)

-- The gradient of each element of x is a power of 2 that identifies its place, over the 4 rows of a cycle.
local WEIGHTED = [[
    local x = LOOKUP (batch.ids)
    x = positions "wpe" { 5 } (x)
    return pick { axis = 2, index = 1 } (x) + 2 * pick { axis = 2, index = 2 } (x)
        + 4 * pick { axis = 2, index = 3 } (x)]]

local function weighted(lookup, more)
    local text = spec((WEIGHTED:gsub("LOOKUP", lookup)), more)
    return (text:gsub('"tiny.safetensors"', '%0, shuffle = false'):gsub('loss      "cross_entropy"',
        "loss      (function(out, batch) return sum(out) end)"))
end

-- Sums over the places of the first 4 rows of tests/numeric/rows.lua, by id.
local function expected_rows(count, width, padding)
    local values = waves(0, 0)
    for i = 1, count * width do values[i] = 0.0 end
    for i = 1, 2 * ROWS do
        for j = 1, 3 do
            local id = (i * j + i // 3) % 4
            for c = 1, width do
                local at = id * width + c
                if id ~= padding then values[at] = values[at] + 2.0 ^ (j - 1) / 4 end
            end
        end
    end
    return values
end

add("the gradient of a table, row by row: rows without an id get 0", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("shapes_rows", weighted 'embedding "wte" { 7, 3 }')
    local found = programs.tensors(programs.dump(p, { "--cycles", 1 }) .. "/gradients.safetensors")
    for i, value in ipairs(expected_rows(7, 3)) do t.equal(found["wte.weight"].values[i], value) end
    for i, value in ipairs { 1, 1, 1, 2, 2, 2, 4, 4, 4, 0, 0, 0, 0, 0, 0 } do
        t.equal(found["wpe.weight"].values[i], value + 0.0)
    end
end)

add("the padding row starts at 0 and stays 0", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("shapes_padding", weighted('embedding "wte" { 7, 3, padding = 2 }',
        'init { { "*", normal = 0.5 } }'))
    local start = t.temp() .. "/start.safetensors"
    local folder = programs.dump(p, { "--cycles", 1, "--save-init", start })
    local found = programs.tensors(folder .. "/gradients.safetensors")["wte.weight"].values
    local after = programs.tensors(folder .. "/parameters.safetensors")["wte.weight"].values
    local before = programs.tensors(start)["wte.weight"].values
    for i, value in ipairs(expected_rows(7, 3, 2)) do t.equal(found[i], value) end
    for i = 1, 21 do
        local padding = i > 6 and i <= 9
        t.equal(before[i] == 0, padding)
        t.equal(after[i] == 0, padding)
    end
end)

-- === initial values ==============================================================================

local function deviation(values)
    local squares = 0
    for _, x in ipairs(values) do squares = squares + x * x end
    return math.sqrt(squares / #values)
end

add("initial values: torch's, or those of the first rule that matches", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local model = [[
    local x = positions "wpe" { 400 } (embedding "wte" { 500, 12 } (batch.ids))
    x = linear "in_out" { 300, store = "in_out" } (pick { axis = 2, index = 1 } (x))
    return linear "head" { 3 } (layernorm "norm" {} (x))]]
    local function start(name, more)
        local file = t.temp() .. "/start.safetensors"
        programs.train(programs.build(name, spec(model, more)), { "--cycles", 1, "--save-init", file })
        return programs.tensors(file)
    end
    local found = start "shapes_torch"
    t.near(deviation(found["wte.weight"].values), 1, 0.03)
    t.near(deviation(found["wpe.weight"].values), 1, 0.03)
    local bound = 1 / math.sqrt(12)
    t.near(greatest(3600, function(i) return math.abs(found["in_out.weight"].values[i]) end), bound, 0.001)
    t.near(deviation(found["in_out.weight"].values), bound / math.sqrt(3), 0.01)
    t.equal(found["in_out.weight"].count, 12 * 300)
    local ruled = start("shapes_init", [[init { { "wte.*", "torch" }, { "*.bias", value = 0.25 },
        { "w*", normal = 0.02 }, { "in_out.weight", uniform = 0.5 }, { "*", value = 2 } }]])
    t.equal(ruled["wte.weight"].values, found["wte.weight"].values)
    t.near(deviation(ruled["wpe.weight"].values), 0.02, 0.001)
    t.near(deviation(ruled["in_out.weight"].values), 0.5 / math.sqrt(3), 0.01)
    for name, value in next, { ["in_out.bias"] = 0.25, ["norm.bias"] = 0.25, ["norm.weight"] = 2.0,
        ["head.weight"] = 2.0 } do
        for _, x in ipairs(ruled[name].values) do t.equal(x, value) end
    end
end)

add("a slice whose gradient is added goes over its own elements alone", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/shapes_slices.lua"
    t.write(path, spec('    local x = linear "l" { 9 } (batch.input)\n    return slice { axis = 2, to = 3 } (x)'
        .. ' * exp(slice { axis = 2, from = 4, to = 6 } (x)) + slice { axis = 2, from = 7 } (x)'))
    local result = programs.gagen { "kernels", path }
    t.equal(result.status, 0, result.err)
    local text = assert(result.out:match "slice_dx_2x9[^\n]*bool add%) {.-\n}\n", "a kernel that adds")
    t.contains(text, "for (int c = add ? FIRST : 0; c < (add ? FIRST + COUNT : WIDTH); c++)")
end)

return tests
