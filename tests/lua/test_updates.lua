-- Emitted updates in f64 against the catalog's expressions evaluated in Lua and against known
-- vectors; an update in two parts against the whole.
local tests = {}
local function add(name, f)
    tests[#tests + 1] = { name, function(t) f(t, t.load("tests/numeric/numeric.lua")(t)) end }
end

local MODEL = ' { linear "a" { 4 }, relu {}, linear "b" { 4 }, relu {}, linear "c" { 4 }, relu {}, '
    .. 'linear "d" { 4 }, relu {}, linear "e" { 3 } }'
local WEIGHTS = { 1, -2, 0.5, 1e-3 }
local GRADIENTS = { { 0.1, -0.2, 0, 1e-6 }, { 0.05, 0.3, 1, -1e-6 }, { -0.4, 0, 0.25, 3 },
    { 1e-4, -0.02, -1, 0.7 }, { 0.3, 0.3, 0, -5e-3 } }

-- Updates of a program, as { lr, NAME = { w = {}, STATE = {} } } for each update.
local function updates_of(t, program, weights, gradients)
    local numbers = { #weights, #gradients, table.unpack(weights) }
    for _, g in ipairs(gradients) do table.move(g, 1, #g, #numbers + 1, numbers) end
    for i, x in ipairs(numbers) do
        numbers[i] = math.type(x) == "integer" and x or ("%.17g"):format(x)
    end
    local file = program.folder .. "/numbers"
    t.write(file, table.concat(numbers, "\n") .. "\n")
    local result = program:check("updates", file)
    t.equal(result.status, 0, result.err)
    local list = {}
    for line in result.out:gmatch("[^\n]+") do
        local lr = line:match("^update %d+ lr (%S+)")
        if lr then
            list[#list + 1] = { lr = tonumber(lr) }
        else
            local name, rest = line:match("^(%S+) (.*)")
            local key, arrays = nil, {}
            for word in rest:gmatch("%S+") do
                if tonumber(word) then
                    table.insert(arrays[key], tonumber(word))
                else
                    key, arrays[word] = word, {}
                end
            end
            list[#list][name] = arrays
        end
    end
    t.equal(#list, #gradients, "updates")
    return list
end

-- The same by the rule's expressions: yields w and states after each update.
local function expected(rule, fields, weights, gradients, lr)
    local expr = require "base.expr"
    local names, now = rule.state(fields), { w = { table.unpack(weights) } }
    local states = {}
    for _, name in ipairs(names) do
        states[name], now[name] = expr.var(name), {}
        for i = 1, #weights do now[name][i] = 0 end
    end
    local var = expr.var
    local statements = rule.update(fields, var "w", var "g", states, var "lr", var "t")
    return function(t)
        for i = 1, #weights do
            local env = { w = now.w[i], g = gradients[t][i], lr = lr(t), t = t }
            for _, name in ipairs(names) do env[name] = now[name][i] end
            for _, s in ipairs(statements) do env[s[1]] = expr.evaluate(expr.lift(s[2]), env) end
            now.w[i] = env.w
            for _, name in ipairs(names) do now[name][i] = env[name] end
        end
        return now
    end
end

-- All fields of a rule with their defaults, changed by each of the lists.
local function fields_of(rule, ...)
    local fields = {}
    for _, field in ipairs(rule.fields) do fields[field.name] = field.default end
    for _, change in ipairs { ... } do
        for key, value in next, change do fields[key] = value end
    end
    return fields
end

local function near(t, found, wanted, what)
    t.equal(#found, #wanted, what)
    for i, x in ipairs(wanted) do
        local tolerance = 1e-14 * math.max(math.abs(x), 1e-3)
        if not (math.abs(found[i] - x) <= tolerance) then
            error(("%s[%d]: the program has %.17g, the expression %.17g"):format(what, i - 1,
                found[i], x), 0)
        end
    end
end

-- optimizer -> the fields of a spec, and groups that change them; 4 groups at most (layers a to d).
local VARIANTS = {
    { "sgd", { lr = 0.1 }, { { weight_decay = 0.1 } } },
    { "sgd", { lr = 0.05, momentum = 0.9 }, { { nesterov = true }, { dampening = 0.5 },
        { weight_decay = 0.1, lr_scale = 0.25 },
        { momentum = 0.5, nesterov = true, weight_decay = 0.01 } } },
    { "adamw", { lr = 0.01 }, { { weight_decay = 0 }, { weight_decay = 0.1, eps = 1e-3 },
        { betas = { 0.8, 0.95 } }, { betas = { 0, 0.5 }, lr_scale = 3 } } },
    { "lamb", { lr = 0.01, adam = true }, { { bias_correction = true }, { weight_decay = 0.1 } } },
}

local function text_of(value)
    if type(value) ~= "table" then return tostring(value) end
    return "{ " .. table.concat(value, ", ") .. " }"
end

local function list_of(fields)
    local keys, parts = {}, {}
    for key in next, fields do keys[#keys + 1] = key end
    table.sort(keys)
    for i, key in ipairs(keys) do parts[i] = key .. " = " .. text_of(fields[key]) end
    return table.concat(parts, ", ")
end

local function spec_of(variant)
    local groups = {}
    for i, group in ipairs(variant[3]) do
        groups[i] = ('{ "%s.*", %s }'):format(("abcd"):sub(i, i), list_of(group))
    end
    return ('{ "%s", %s, groups = { %s } }'):format(variant[1], list_of(variant[2]),
        table.concat(groups, ", "))
end

local function check_variant(t, numeric, variant, schedule, rate)
    local rule = require "catalog.catalog".load().optimizers:get(variant[1])
    local program = numeric.build { model = MODEL, optimizer = spec_of(variant),
        schedule = schedule }
    local found = updates_of(t, program, WEIGHTS, GRADIENTS)
    for i = 0, #variant[3] do
        local group = variant[3][i] or {}
        local lr = variant[2].lr
        local next_update = expected(rule, fields_of(rule, variant[2], group), WEIGHTS, GRADIENTS,
            function(u) return rate(u, lr) * (group.lr_scale or 1) end)
        local name = (i == 0 and "e" or ("abcd"):sub(i, i)) .. ".weight"
        for u = 1, #GRADIENTS do
            local wanted = next_update(u)
            t.near(found[u].lr, rate(u, lr), 1e-17)
            for key, values in next, wanted do
                near(t, found[u][name][key], values, ("update %d: %s %s"):format(u, name, key))
            end
        end
    end
end

for i, variant in ipairs(VARIANTS) do
    add(("%s %d: five updates are the expression's"):format(variant[1], i), function(t, numeric)
        check_variant(t, numeric, variant, '"constant"', function(_, lr) return lr end)
    end)
end

add("the rate of the schedule reaches the update", function(t, numeric)
    check_variant(t, numeric, VARIANTS[3], '{ "constant", warmup = 3 }',
        function(u, lr) return u <= 3 and lr * (u / 3) or lr end)
end)

local REFUSED = {
    { '{ "sgd", lr = 0.1, groups = { { "a.*", momentum = 0.9 } } }',
        "group 1: keeps buf for each parameter, the optimizer's own fields keep nothing" },
    { '{ "sgd", lr = 0.1, momentum = 0.9, groups = { { "a.*", lr_scale = 2 }, '
        .. '{ "b.*", momentum = 0 } } }',
        "group 2: keeps nothing for each parameter, the optimizer's own fields keep buf" },
    { '{ "sgd", lr = 0.1, groups = { { "a.*", nesterov = true } } }', "nesterov needs momentum" },
    { '{ "sgd", lr = 0.1, groups = { { "a.*", lr = 0.2 } } }', "expected lr_scale: what it is multiplied with" },
    { '{ "adamw", lr = 0.1, groups = { { "a.*", betas = { 2, 3 } } } }', "each of betas" },
}

add("options that a group cannot change are refused", function(t, numeric)
    for _, refused in ipairs(REFUSED) do
        local program, stage, outcome = numeric.try { model = MODEL, optimizer = refused[1] }
        t.equal({ program, stage, outcome and outcome.status }, { nil, "gagen", 1 }, refused[1])
        t.contains(outcome.err, refused[2])
    end
end)

-- p = [1, -2], g = [.1, -.2] then [.05, .3], lr .01, weight decay .1
-- The parameter after updates 1 and 2; one program has the vectors of an entry as its groups. Lars has a bound of 10
-- for elements of a step.
local VECTORS = {
    { "adamw", { weight_decay = .1 }, { { .989000001, -1.988000001 }, { .978689206, -1.988489019 } } },
    { "hybrid_adam", { weight_decay = .1 }, { { .989000001, -1.988000001 }, { .978689206, -1.988489019 } },
        { adamw_mode = false }, { { .99, -1.99 }, { .980180494, -1.985326140 } },
        { bias_correction = false }, { { .967377323, -1.966377273 }, { .926796230, -1.974937203 } } },
    { "fused_sgd", { weight_decay = .1, momentum = .9 }, { { .998, -1.996 }, { .994702, -1.993404 } },
        { nesterov = true }, { { .9962, -1.9924 }, { .991737220, -1.991074440 } },
        { dampening = .5 }, { { .998, -1.996 }, { .995451, -1.992902 } },
        { wd_after_momentum = true }, { { .998, -1.996 }, { .995602, -1.995204 } } },
    { "lamb", { weight_decay = .1 }, { { .984430330, -1.983950534 }, { .962757454, -1.988511535 } },
        { bias_correction = true }, { { .995076438, -1.994924713 }, { .989942566, -1.996003452 } } },
    { "lars", { weight_decay = .1, momentum = .9 }, { { .999990, -1.999980 }, { .999976018, -1.999968984 } },
        { lars = false }, { { .999, -1.998 }, { .9976, -1.9992 } } },
    { "lars", { weight_decay = .1, momentum = .9 },
        { { .999999000999, -1.999999000999 }, { .999611313, -1.999621906 } },
        { lars = false }, { { .9, -1.9 }, { .8095, -1.813 } }, gradients = { { 100, -200 }, { .05, .3 } } },
    { "fused_lamb", { weight_decay = .1 }, { { .984890378, -1.983516695 }, { .962769959, -1.984575849 } } },
    { "fused_lamb", { weight_decay = .1, max_grad_norm = .1 },
        { { .984890428, -1.983516649 }, { .962851332, -1.981345710 } } },
    { "fused_lamb", { weight_decay = 0, max_grad_norm = .1 },
        { { .990000224, -1.990000112 }, { .981143110, -1.991014152 } } },
}

-- fused_lamb looks at the norm of all gradients, so that its vectors need one parameter alone.
local function check_vectors(t, numeric, vector)
    local variant, layers = { vector[1], { lr = 0.01 }, {} }, {}
    for key, value in next, vector[2] do variant[2][key] = value end
    for i = 1, (#vector - 3) // 2 do
        variant[3][i] = vector[2 + 2 * i]
        layers[i] = ('linear "%s" { 3, bias = false }'):format(("abcd"):sub(i, i))
    end
    layers[#layers + 1] = 'linear "e" { 3, bias = false }'
    local program = numeric.build { model = " { " .. table.concat(layers, ", ") .. " }", optimizer = spec_of(variant) }
    local found = updates_of(t, program, { 1, -2 },
        vector.gradients or { { .1, -.2 }, { .05, .3 } })
    for k = 0, #layers - 1 do
        local name = (k == 0 and "e" or ("abcd"):sub(k, k)) .. ".weight"
        for u = 1, 2 do
            for i = 1, 2 do t.near(found[u][name].w[i], vector[3 + 2 * k][u][i], 1e-9) end
        end
    end
end

for _, vector in ipairs(VECTORS) do
    local far = vector.gradients and ", great gradients" or ""
    add("known vectors of " .. vector[1] .. list_of(vector[2]) .. far, function(t, numeric)
        check_vectors(t, numeric, vector)
    end)
end

add("a rule whose ratio is always 1 computes no norms of tensors", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    for fields, norms in next, { ['"lamb"'] = true, ['"lamb", adam = true'] = false, ['"fused_lamb"'] = true,
        ['"fused_lamb", weight_decay = 0'] = false } do
        local path = programs.folder() .. "/lamb_norms.lua"
        t.write(path, host.read("specs/digits_mlp.lua"):gsub("optimizer [^\n]*", ("optimizer { %s }"):format(fields)))
        local shown = programs.gagen { "show", path, "kernels.c" }
        t.equal({ shown.status, shown.out:find("update_all_sums", 1, true) ~= nil }, { 0, norms }, fields)
    end
end)

-- === shards ======================================================================================

local SWEEPS = { { '{ "adamw", lr = 0.01 }', "m->state_m,m->state_v" },
    { '{ "sgd", lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.1 }', "m->state_buf" } }

add("an update in two parts gives the same bits as the whole", function(t, numeric)
    for _, sweep in ipairs(SWEEPS) do
        local program = numeric.build { model = ' { linear "a" { 40 }, tanh {}, linear "b" { 3 } }',
            optimizer = sweep[1], flags = "-O3 -march=native '-DSTATE_ARRAYS=" .. sweep[2] .. "'" }
        for _, cut in ipairs { "16", "64", "176", "208", "320" } do
            local result = program:check("shards", cut)
            t.equal(result.status, 0, sweep[1] .. " at " .. cut .. "\n" .. result.out .. result.err)
        end
    end
end)

return tests
