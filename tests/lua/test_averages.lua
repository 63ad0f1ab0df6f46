-- Averages of parameters: against sums computed here, in evaluations, and without effect on training. Frozen groups:
-- no gradient, state or update. Rates that decay by layer: against groups with written rates. All on both targets.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local function spec(optimizer, more)
    return ([[
data       { "csv", train = "tiny.csv", target = "last", split = { eval = 20, seed = 1 } }
batch      (5)
accumulate (2)
model      { linear "fc1" { 8 }, tanh {}, times(2) "h" { linear "fc" { 8 }, tanh {} }, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, momentum = 0.9%s }
train      { updates = 12 }
precision  "f64"
eval       { every = 6 }
%s]]):format(optimizer, more or "")
end

-- Programs of both targets, and the environment of each.
local function both(t, name, optimizer)
    local how = { probe = name == "averages" }
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, environment = t.load("tests/lua/devices.lua").open(t)
    local list = { { programs.build(name .. "_c", spec(optimizer), how), nil },
        { programs.build(name .. "_cuda", spec(optimizer, 'target "cuda"\n'), how), environment() } }
    return programs, list
end

local function values(programs, dump, file) return programs.tensors(("%s/%s.safetensors"):format(dump, file)) end

add("averages against their definition; training is the same as without them", function(t)
    local programs, list = both(t, "averages", ", ema = 0.75")
    local plain = programs.build("averages_plain", spec "")
    for _, way in ipairs(list) do
        local start = t.temp() .. "/start.safetensors"
        programs.train(way[1], { "--save-init", start, "--cycles", 1, env = way[2] })
        local average = programs.tensors(start)
        for cycle = 1, 5 do
            local dump = programs.dump(way[1], { "--cycles", cycle, env = way[2] })
            local now, state = values(programs, dump, "parameters"), values(programs, dump, "state")
            for name, tensor in next, now do
                for i, x in ipairs(tensor.values) do
                    local old = average[name].values
                    old[i] = old[i] + 0.25 * (x - old[i])
                    t.near(state[name .. ".ema"].values[i], old[i], 1e-13)
                end
            end
        end
        programs.close(programs.dump(way[1], { env = way[2] }), programs.dump(plain, {}),
            way[2] and 1e-12 or 0, { "parameters" })
    end
end)

local function evaluations(programs, program, o)
    local list = {}
    for _, event in ipairs(programs.events(program, o)) do
        if event.event == "eval" then list[#list + 1] = event.loss end
    end
    return list
end

-- A file of the averages in a dump, as values of the parameters.
local function averages_of(t, dump)
    local text, list = host.read(dump .. "/state.safetensors"), {}
    local start = 8 + string.unpack("<I8", text)
    for name, entry in next, t.load("tests/lua/json.lua").read(text:sub(9, start)) do
        local parameter = name:match "^(.*)%.ema$"
        if parameter then
            local values = {}
            for at = entry.data_offsets[1], entry.data_offsets[2] - 1, 8 do
                values[#values + 1] = string.unpack("<d", text, start + at + 1)
            end
            list[#list + 1] = { parameter, entry.dtype, entry.shape, values }
        end
    end
    local path = t.temp() .. "/averages.safetensors"
    t.write(path, t.load("tests/numeric/rows.lua").file(list))
    return path
end

-- The figures are those of a program without averages that has the averages as values of its parameters.
add("evaluations use the averages, also after a resume", function(t)
    local programs, list = both(t, "averages", ", ema = 0.75")
    local plain = programs.build("averages_plain", spec "")
    local without = evaluations(programs, plain, {})
    for _, way in ipairs(list) do
        local wanted = {}
        for i, cycle in ipairs { 6, 12 } do
            local dump = programs.dump(way[1], { "--cycles", cycle, env = way[2] })
            wanted[i] = evaluations(programs, plain, { "--eval", "--init", averages_of(t, dump) })[1]
            assert(math.abs(wanted[i] - without[i]) > 1e-3, "without averages an evaluation finds something else")
        end
        local found, folder = evaluations(programs, way[1], { env = way[2] }), t.temp()
        t.equal(#found, 2)
        for i, loss in ipairs(found) do t.near(loss, wanted[i], 1e-8) end
        t.near(evaluations(programs, way[1], { "--eval", env = way[2] })[1],
            evaluations(programs, plain, { "--eval" })[1], 1e-8)
        programs.train(way[1], { "--stop-micro", 14, "--checkpoint", folder, status = 75, env = way[2] })
        local resumed = evaluations(programs, way[1], { "--resume", "latest", "--checkpoint", folder, env = way[2] })
        t.equal(resumed, { found[2] })
    end
end)

add("averages are the same in train-probe", function(t)
    local programs, list = both(t, "averages", ", ema = 0.75")
    for _, way in ipairs(list) do
        local p, env = way[1], way[2]
        local plain, probed = programs.dump(p, { env = env }), programs.dump({ train = p.probe }, { env = env })
        programs.identical(probed, plain)
        t.equal(evaluations(programs, { train = p.probe }, { env = env }), evaluations(programs, p, { env = env }))
    end
end)

add("a frozen group keeps its values, bit by bit", function(t)
    local programs, list = both(t, "frozen", ', groups = { { "h.*", frozen = true }, { "fc2.bias", frozen = true } }')
    local whole = programs.build("averages_plain", spec "")
    for _, way in ipairs(list) do
        local start = t.temp() .. "/start.safetensors"
        local dump = programs.dump(way[1], { "--save-init", start, env = way[2] })
        local before, after = programs.tensors(start), values(programs, dump, "parameters")
        local state, gradient = values(programs, dump, "state"), values(programs, dump, "gradients")
        local frozen = { ["h.0.fc.weight"] = true, ["h.1.fc.weight"] = true, ["h.0.fc.bias"] = true,
            ["h.1.fc.bias"] = true, ["fc2.bias"] = true }
        for name, tensor in next, after do
            local same = true
            for i, x in ipairs(tensor.values) do same = same and x == before[name].values[i] end
            t.equal(same, frozen[name] or false, name)
            t.equal({ state[name .. ".buf"] == nil, gradient[name] == nil },
                { frozen[name] or false, frozen[name] or false }, name)
        end
        -- the trained parameters get the same gradient as when all are trained
        local one = values(programs, programs.dump(way[1], { "--cycles", 1, env = way[2] }), "gradients")
        local all = values(programs, programs.dump(whole, { "--cycles", 1 }), "gradients")
        for name, tensor in next, one do
            for i, x in ipairs(tensor.values) do t.near(x, all[name].values[i], 1e-14) end
        end
    end
end)

local function layered(model, rule, how)
    return ([[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch      (16)
model      { linear "in" { 20 }, %s, linear "mid" { 20 }, %s, linear "out" { 10 } }
loss       "cross_entropy"
optimizer  { "%s", lr = 0.02, weight_decay = 0.1, %s }
precision  "f64"
train      { updates = 4 }
]]):format(model[1], model[2], rule, how)
end

-- Depths: in 0, g.0 1, g.1 2, mid 2, h.0 3, out 4; the rate of each is half that of the next.
add("layer_decay equals groups with written rates", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, environment = t.load("tests/lua/devices.lua").open(t)
    local rolled = { 'times(2) "g" { linear "fc" { 20 }, tanh {} }', 'times(1) "h" { linear "fc" { 20 }, tanh {} }' }
    local flat = { 'linear "g.0.fc" { 20 }, tanh {}, linear "g.1.fc" { 20 }, tanh {}',
        'linear "h.0.fc" { 20 }, tanh {}' }
    local groups = {}
    for i, part in ipairs { "in", "g.0", "g.1", "mid", "h.0" } do
        groups[i] = ('{ "%s.*", lr_scale = %s }'):format(part, ({ "1/16", "1/8", "1/4", "1/4", "1/2" })[i])
    end
    for _, rule in ipairs { "adamw", "lamb" } do
        local wanted = programs.dump(programs.build("layers_flat_" .. rule, layered(flat, rule,
            "groups = { " .. table.concat(groups, ", ") .. " }")), {})
        for target, env in next, { c = {}, cuda = environment() } do
            local program = programs.build(("layers_%s_%s"):format(rule, target),
                layered(rolled, rule, "layer_decay = 0.5") .. ('target "%s"\n'):format(target))
            programs.close(programs.dump(program, { env = target == "cuda" and env or nil }), wanted, 1e-12,
                { "parameters" })
        end
    end
end)

-- The first group that fits wins.
add("a group without a parameter gives a warning", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function warned(groups)
        local path = programs.folder() .. "/averages_groups.lua"
        t.write(path, spec(", groups = " .. groups))
        local result = programs.gagen { "check", path }
        t.equal(result.status, 0, result.err)
        return result.err
    end
    t.contains(warned '{ { "fc1.*", lr_scale = 2 }, { "*c1.bias", lr_scale = 3 } }',
        "optimizer: group 2 changes nothing: the groups before it take all that fits")
    t.contains(warned "{ { rank = 4, lr_scale = 2 } }", "optimizer: group 1 changes nothing: no parameter has rank 4")
    assert(not warned('{ { "fc1.bias", lr_scale = 2 }, { "fc1.*", lr_scale = 3 } }'):find "nothing")
end)

add("wrong options are refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/averages_refused.lua"
    for _, case in ipairs {
        { ", layer_decay = 2", "layer_decay is 2" },
        { ", ema = 1", "ema is 1, expected a number > 0 and < 1" }, { ", ema = true", "ema is true, expected a number" },
        { ', groups = { { "*", frozen = true } }', "depends on no parameter, expected at least one to train" },
        { ', groups = { { "fc1.*", frozen = 1 } }', "frozen is 1, expected true or false" } } do
        t.write(path, spec(case[1]))
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1, case[1])
        t.contains(result.err, case[2])
    end
end)

return tests
