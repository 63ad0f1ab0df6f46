-- Clipping against its definition: the gradient dumped by a program without clipping is clipped here in Lua, and plain
-- SGD with it must give the parameters of the program with clipping.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local INF = math.huge
local LR = 0.5

-- 90 rows are 5 micro-batches, in the same order in each epoch. The first cycle is a tail of 5 where 8 were asked for,
-- whose gradient has to be multiplied by 8 / 5 before it is measured; the second, of the next epoch, a full one of 2.
local BOTH = "8, later = { [1] = 2 }"

local function spec(clip, accumulate, more)
    return ([[
data       { "csv", train = "tiny.csv", target = "last", shuffle = false }
batch      (16)
accumulate { %s, tail = "flush" }
model      { linear "in" { 70 }, tanh {}, times(3) "h" { residual { linear "fc" { 70 }, tanh {} } }, linear "out" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = %g, groups = { { rank = 1 }, { "h.*", lr_scale = 0.5 } } }
%s
precision  "f64"
train      { updates = 2 }
]]):format(accumulate or BOTH, LR, clip) .. (more or "")
end

-- The group of a parameter in spec(): 0 to 2, and its share of the rate.
local function group_of(name)
    if name:find("bias", 1, true) then return 1, 1 end
    if name:find("^h%.") then return 2, 0.5 end
    return 0, 1
end

local function norm(gradients, names, p)
    local sum = 0
    for _, name in ipairs(names) do
        for _, g in ipairs(gradients[name]) do
            sum = p == INF and math.max(sum, math.abs(g)) or sum + math.abs(g) ^ p
        end
    end
    return p == INF and sum or sum ^ (1 / p)
end

-- Clips the gradient of a whole cycle by definition; also returns its norm before clipping.
local function clipped(dumped, how, mean, before)
    local gradients, groups, names = {}, { [0] = {}, {}, {} }, {}
    for name, tensor in next, dumped do
        gradients[name], names[#names + 1] = {}, name
        for i, g in ipairs(tensor.values) do
            g = g * mean
            if how.gradient then g = how.gradient(g, before[name].values[i]) end
            if how.value then g = math.max(-how.value, math.min(how.value, g)) end
            gradients[name][i] = g
        end
    end
    table.sort(names)
    for _, name in ipairs(names) do
        local group = how.per_group and group_of(name) or 0
        table.insert(groups[group], name)
    end
    local whole = norm(gradients, names, how.p or 2)
    for _, group in next, groups do
        local factor = how.norm and math.min(1, how.norm / (norm(gradients, group, how.p or 2) + 1e-6)) or 1
        for _, name in ipairs(group) do
            for i, g in ipairs(gradients[name]) do gradients[name][i] = g * factor end
        end
    end
    return gradients, whole
end

local CASES = {
    { "norm", "(0.05)", { norm = 0.05 } },
    { "norm that is not reached", "(1e3)", { norm = 1e3 } },
    { "1-norm", "{ 0.7, p = 1 }", { norm = 0.7, p = 1 } },
    { "3-norm", "{ 0.02, p = 3 }", { norm = 0.02, p = 3 } },
    { "inf-norm", '{ 0.003, p = "inf" }', { norm = 0.003, p = INF } },
    { "value", "{ value = 0.002 }", { value = 0.002 } },
    { "value, then norm", "{ 0.02, value = 0.002 }", { norm = 0.02, value = 0.002 } },
    { "each group", "{ 0.02, per_group = true }", { norm = 0.02, per_group = true } },
    { "largest of each group, after value", '{ 0.001, p = "inf", value = 0.002, per_group = true }',
        { norm = 0.001, p = INF, value = 0.002, per_group = true } },
    { "a function of the spec", "(1e3)\ngradient (function(g, w) return 3 * g + 0.1 * w end)",
        { norm = 1e3, gradient = function(g, w) return 3 * g + 0.1 * w end } },
    { "a function of the spec, then value and norm",
        "{ 0.02, value = 0.002 }\ngradient (function(g, w) return where(gt(w, 0), 2 * g, abs(g)) end)",
        { norm = 0.02, value = 0.002, gradient = function(g, w) return w > 0 and 2 * g or math.abs(g) end } },
}

-- One update from the values in the file `start` to those in the dump `after`, whose gradient program `plain` has.
local function check(t, programs, plain, how, mean, start, after, logged)
    local raw = programs.dump(plain, { "--cycles", 1, "--init", start })
    local before = programs.tensors(start)
    local gradients, whole = clipped(programs.tensors(raw .. "/gradients.safetensors"), how, mean, before)
    for name, tensor in next, programs.tensors(after .. "/parameters.safetensors") do
        local _, scale = group_of(name)
        local from, clipped_by = before[name].values, gradients[name]
        for i, w in ipairs(tensor.values) do
            local expected = from[i] - LR * scale * clipped_by[i]
            if not (math.abs(w - expected) <= 1e-14) then
                error(("%s: element %d is %.17g, expected %.17g"):format(name, i, w, expected))
            end
        end
    end
    t.near(logged.grad_norm, whole, 1e-12 * whole)
end

for i, case in ipairs(CASES) do
    add(case[1] .. " by its definition", function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        local short, full = programs.build("clip_none_8", spec("", "8")), programs.build("clip_none_2", spec("", "2"))
        local p = programs.build("clip_" .. i, spec("clip " .. case[2]))
        local start, log, updates = t.temp() .. "/start.safetensors", t.temp() .. "/log", {}
        local first = programs.dump(p, { "--cycles", 1, "--save-init", start })
        local second = programs.dump(p, { "--cycles", 2, "--log", log })
        for _, event in ipairs(t.load("tests/lua/json.lua").lines(host.read(log))) do
            if event.event == "update" then updates[#updates + 1] = event end
        end
        t.equal(#updates, 2)
        check(t, programs, short, case[3], 8 / 5, start, first, updates[1])
        check(t, programs, full, case[3], 1, first .. "/parameters.safetensors", second, updates[2])
    end)
end

-- The flat space of tensors in this order, with zeros up to a multiple of 16 behind each.
local function flat(tensors, names)
    local list = {}
    for _, name in ipairs(names) do
        table.move(tensors[name].values, 1, #tensors[name].values, #list + 1, list)
        while #list % 16 > 0 do list[#list + 1] = 0.0 end
    end
    return list
end

-- The sum of squares in its order: element i of a tile of 4096 goes to sum i mod 32; these are added up, then the tiles.
local function squares_of(list)
    local all = 0.0
    for first = 1, #list, 4096 do
        local lanes = {}
        for lane = 1, 32 do lanes[lane] = 0.0 end
        for i = first, math.min(first + 4095, #list) do
            local lane = (i - first) % 32 + 1
            lanes[lane] = lanes[lane] + list[i] * list[i]
        end
        for lane = 2, 32 do lanes[1] = lanes[1] + lanes[lane] end
        all = all + lanes[1]
    end
    return all
end

-- 9360 elements, 16 of them behind the last whole row of lanes. Another order has the same root at times, but not after
-- each of six updates.
add("the norm is added up in its order, to the last bit", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local model = 'model { linear "a" { 70 }, tanh {}, linear "b" { 121 }, tanh {}, linear "c" { 3 } }'
    local text = spec("", "1"):gsub("model [^\n]*", model):gsub(", groups = [^\n]* }", " }"):gsub('precision  "f64"', "")
    local p = programs.build("clip_order", (text:gsub("updates = 2", "updates = 6")))
    for cycles = 1, 6 do
        local log = t.temp() .. "/log"
        local folder = programs.dump(p, { "--cycles", cycles, "--log", log })
        local dumped, last = programs.tensors(folder .. "/gradients.safetensors"), nil
        local list = flat(dumped, { "a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias" })
        t.equal(#list, 9360)
        for _, event in ipairs(t.load("tests/lua/json.lua").lines(host.read(log))) do
            if event.event == "update" then last = event end
        end
        t.equal(last.update, cycles)
        t.equal(last.grad_norm, math.sqrt(squares_of(list)))
    end
end)

add("two ranks clip the gradient of all rows", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local clip = "clip { 0.05, p = 1, value = 0.002, per_group = true }"
    local one = programs.build("clip_one", spec(clip))
    local two = programs.build("clip_two", spec(clip, BOTH, 'parallel "ddp"\n'):gsub("batch      %(16%)", "batch (8)"),
        { comm = "mpi" })
    programs.close(programs.dump(two, { ranks = 2, "--threads", 1 }), programs.dump(one, {}), 1e-12, { "parameters" })
end)

add("a program without clip has no code for it", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("clip_none_2", spec("", "2"))
    local text = host.read(p.folder .. "/update.c") .. host.read(p.folder .. "/kernels.c")
    assert(not text:find("clip [<=]"), "clipping is there")
end)

-- The inputs are positive, so that elements of the gradient are infinite and none is NaN.
add("an infinite gradient is found although values are clipped", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local text = spec("clip { value = 0.5 }", BOTH, 'init { "*", value = 1e3 }\n')
        :gsub("model [^\n]*", 'model (function(batch) return exp(linear "in" { 3 } (abs(batch.input) + 0.1)) end)')
        :gsub("loss [^\n]*", "loss (function(y, batch) return sum(y) end)"):gsub(", groups = [^\n]* }", " }")
    local result = programs.train(programs.build("clip_infinite", text), { "--cycles", 1, status = 4 })
    t.contains(result.err, "15 elements of the gradient are not finite")
end)

add("clip refuses wrong arguments", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function refused(clip, part, optimizer)
        local path, text = programs.folder() .. "/clip_refused.lua", spec("clip " .. clip)
        if optimizer then text = text:gsub("optimizer [^\n]*", "optimizer " .. optimizer) end
        t.write(path, text)
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1, clip)
        t.contains(result.err, part)
    end
    refused("{}", "expected norm or value")
    refused("(0)", "norm is 0, expected a number > 0")
    refused("{ value = 1, p = 1 }", "p without norm")
    refused("{ value = 1, per_group = true }", "per_group without norm")
    refused("{ 1, p = 0 }", 'p is 0, expected a number > 0 and <= 16 or "inf"')
    refused("{ 1, p = 17 }", 'p is 17, expected a number > 0 and <= 16 or "inf"')
    refused("(1)\ngradient (2)", "gradient: expected a function of g and w")
    refused("(1)\ngradient (function(g, w) return g + 1 end)", "of g = 0 and w = 0 the function makes 1, expected 0")
    refused("(1)\ngradient (function(g, w) return true end)", "the function must return an expression, found a boolean")
    refused("(1)\ngradient (function(g, w) return linear \"x\" { 3 } (g) end)",
        "the function takes arithmetic and pointwise functions of g and w")
    refused("{ 1, p = 1 }", "reads the 2-norm of the whole gradient", '{ "fused_lamb", lr = 0.1 }')
    refused("{ 1, per_group = true }", "reads the 2-norm of the whole gradient", '{ "fused_lamb", lr = 0.1 }')
end)

add("norms of more groups than a small sum over the ranks has room for are refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function checked(groups)
        local list = {}
        for i = 1, groups - 1 do list[i] = ('{ "h.%d.*", lr_scale = %g }'):format(i - 1, i) end
        local path, text = programs.folder() .. "/clip_groups.lua", spec("clip { 1, per_group = true }")
        t.write(path, text:gsub("model [^\n]*", ('model { linear "in" { 2 }, times(%d) "h" { linear "fc" { 2 }, tanh {} },'
            .. ' linear "out" { 3 } }'):format(groups - 1)):gsub("optimizer [^\n]*", 'optimizer { "sgd", lr = 1, groups = { '
            .. table.concat(list, ", ") .. " } }") .. 'parallel "ddp"\n')
        return programs.gagen { "check", path }
    end
    t.equal(checked(251).status, 0)
    local result = checked(252)
    t.equal(result.status, 1)
    t.contains(result.err, "clip_groups.lua:7: clip: per_group with ranks and 252 groups, expected at most 251")
end)

return tests
