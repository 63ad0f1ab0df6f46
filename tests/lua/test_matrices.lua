-- Optimizers with a form for matrices, beyond the tests of all rules in test_optimizers.lua: a stack of layers is
-- treated as single matrices; threads and ranks change nothing; state of only some parameters is saved and resumed;
-- averages and frozen groups work with it; rows and columns without a gradient keep their values.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local RULES = {
    muon = '"muon", lr = 0.02, ns_steps = 2, rest = { "adamw", lr = 0.01 }, '
        .. 'groups = { { "out.weight", rest = true } }',
    adafactor = '"adafactor", lr = 0.05, weight_decay = 0.1, groups = { { rank = 1, weight_decay = 0 } }',
}

local LAYERS = 'linear "in" { 70 }, tanh {}, times(3) "h" { linear "fc" { 70 }, tanh {} }, linear "out" { 10 }'

-- Less work for a device, also with a matrix and a stack that are more than a tile of 4,096 elements.
local NARROW = LAYERS:gsub('times', 'linear "mid" { 37 }, tanh {}, %0'):gsub('"fc" { 70 }', '"fc" { 37 }')

local function spec(rule, more, model)
    return ([[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, shuffle = false }
batch      (8)
accumulate (2)
model      { %s }
loss       "cross_entropy"
optimizer  { %s }
precision  "f64"
train      { updates = 4 }
%s]]):format(model or LAYERS, rule, more or "")
end

-- A file of tensors with other bytes for one of them.
local function with_values(text, tensor, bytes)
    local start = 8 + string.unpack("<I8", text)
    local from, to = text:match('"' .. tensor:gsub("%p", "%%%0") .. '":{[^}]*"data_offsets":%[(%d+),(%d+)%]')
    assert(to - from == #bytes)
    return text:sub(1, start + from) .. bytes .. text:sub(start + to + 1)
end

for name, rule in require "base.ordered".each(RULES) do
    add(name .. ": a stack is its layers, threads change nothing", function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        local layers = {}
        for l = 0, 2 do layers[l + 1] = ('linear "h.%d.fc" { 70 }, tanh {}'):format(l) end
        local flat = ('linear "in" { 70 }, tanh {}, %s, linear "out" { 10 }'):format(table.concat(layers, ", "))
        local rolled = programs.build("matrices_" .. name, spec(rule))
        local one = programs.dump(rolled, { "--threads", 1 })
        programs.identical(programs.dump(rolled, { "--threads", 3 }), one)
        programs.close(programs.dump(programs.build("matrices_flat_" .. name, spec(rule, nil, flat)), {}), one, 1e-12)
    end)

    add(name .. ": a stopped run goes on bit by bit, and another optimizer's state is refused", function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        local program = programs.build("matrices_" .. name, spec(rule))
        local straight, half = programs.dump(program, {}), t.temp()
        programs.train(program, { "--stop-micro", 5, "--checkpoint", half, status = 75 })
        programs.identical(programs.dump(program, { "--resume", "latest", "--checkpoint", half }), straight)
        local other = programs.build("matrices_adamw", spec '"adamw"')
        local refused = programs.train(other, { "--resume", "latest", "--checkpoint", half, status = 1 })
        t.contains(refused.err, "in.weight.v")
    end)

    add(name .. ": on a device as on the host", function(t)
        local devices = t.load("tests/lua/devices.lua")
        local programs, environment = devices.open(t)
        local expected = programs.dump(programs.build("matrices_host_" .. name, spec(rule, nil, NARROW)),
            { "--cycles", 2 })
        local program = programs.build("matrices_cuda_" .. name, spec(rule, 'target "cuda"\n', NARROW))
        local found = programs.dump(program, { "--cycles", 2, env = environment(devices.checked(1)) })
        programs.close(found, expected, 1e-11)
    end)

    add(name .. ": two ranks are one", function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        local ranked = spec(rule, 'parallel "ddp"\n'):gsub("accumulate %(2%)", "accumulate (1)")
        local program = programs.build("matrices_ranks_" .. name, ranked, { comm = "mpi" })
        local two = programs.dump(program, { ranks = 2, "--threads", 1 })
        programs.close(two, programs.dump(programs.build("matrices_" .. name, spec(rule)), {}), 1e-11)
    end)

    add(name .. ": averages and frozen groups", function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        local program = programs.build("matrices_" .. name, spec(rule))
        local averaged = programs.build("matrices_ema_" .. name, spec(rule .. ", ema = 0.5"))
        local dump = programs.dump(averaged, {})
        programs.close(dump, programs.dump(program, {}), 0, { "parameters" })
        local function state(folder) return programs.tensors(folder .. "/state.safetensors") end
        local before, after = state(programs.dump(averaged, { "--cycles", 3 })), state(dump)
        local now = programs.tensors(dump .. "/parameters.safetensors")
        for parameter, w in next, now do
            for i, x in ipairs(w.values) do
                t.near(after[parameter .. ".ema"].values[i],
                    (before[parameter .. ".ema"].values[i] + x) / 2, 1e-14, parameter)
            end
        end
        local frozen = programs.build("matrices_frozen_" .. name,
            spec((rule:gsub("groups = {", 'groups = { { "h.*", frozen = true },'))))
        local start = t.temp() .. "/start.safetensors"
        local held = programs.dump(frozen, { "--save-init", start })
        local first, last = programs.tensors(start), programs.tensors(held .. "/parameters.safetensors")
        for parameter, w in next, last do
            local same = table.concat(w.values, " ") == table.concat(first[parameter].values, " ")
            t.equal(same, parameter:find("^h%.") ~= nil, parameter)
        end
        for state in next, programs.tensors(held .. "/state.safetensors") do t.equal(state:find("^h%."), nil, state) end
    end)

    -- The first pixel of a digit is always 0, so the first column of the first weight has no gradient; a layer after
    -- dead units has none at all.
    add(name .. ": rows and columns without a gradient stay", function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        local free = rule:gsub("lr = 0%.02", "%0, weight_decay = 0"):gsub("weight_decay = 0%.1", "weight_decay = 0")
        local program = programs.build("matrices_zero_" .. name, spec(free, nil,
            'linear "in" { 12 }, tanh {}, linear "dead" { 5 }, relu {}, linear "out" { 10 }'))
        local start, dead = t.temp() .. "/start.safetensors", t.temp() .. "/dead.safetensors"
        local function trained(o) return programs.tensors(programs.dump(program, o) .. "/parameters.safetensors") end
        local moved = trained { "--save-init", start }["in.weight"].values
        local first = programs.tensors(start)
        t.write(dead, with_values(host.read(start), "dead.bias", string.pack("<d", -1000):rep(5)))
        local last = trained { "--init", dead }
        t.equal(last["dead.weight"].values, first["dead.weight"].values)
        t.equal(last["in.weight"].values, first["in.weight"].values)
        for i, x in ipairs(moved) do
            if i % 64 == 1 then t.equal(x, first["in.weight"].values[i]) end
        end
        assert(moved[4] ~= first["in.weight"].values[4], "other columns move")
    end)
end

add("state takes only the memory that it needs", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/matrices_plan.lua"
    local function arenas(rule)
        t.write(path, spec(rule, nil, 'linear "in" { 1000 }, tanh {}, linear "out" { 10 }'))
        local found = {}
        for _, arena in ipairs(programs.plan({ spec = path, name = "matrices_plan" }).arenas) do
            found[arena.name] = arena.bytes // 4096
        end
        return found
    end
    local plain, muon, factors = arenas '"adamw"', arenas '"muon"', arenas '"adafactor"'
    t.equal({ plain.state_m, plain.state_v }, { 147, 147 })                          -- 75,010 parameters and gaps
    t.equal({ muon.state_buf, muon.state_m, muon.state_v }, { 145, 2, 2 })                 -- 74,000 in matrices, 1,010 in vectors
    t.equal({ factors.state_row_var, factors.state_col_var, factors.state_variance }, { 2, 3, 2 })
end)

add("wrong uses of rest are refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/matrices_refused.lua"
    for _, case in ipairs {
        { '"adamw", rest = "sgd"', "rest is given, but 'adamw' updates all parameters itself" },
        { '"muon", rest = "muon"', "rest is 'muon', which does not update all parameters" },
        { '"muon", rest = { "adam", betas = { 1 } }', "optimizer: rest 'adam': betas takes two numbers" },
        { '"muon", rest = "adan"', "optimizer: rest: 'adan' is unknown" },
        { '"muon", rest = { "adamw", momentum = 1 }', "unknown field 'momentum'" },
        { '"muon", lr = 0', "lr is 0, expected a number > 0" },
        { '"muon", ns_coefficients = { 1, 2 }', "ns_coefficients takes three numbers" },
        { '"muon", adjust_lr_fn = "none"', "adjust_lr_fn is 'none', expected one of" },
        { '"muon", groups = { { "out.*", momentum = 0.5 } }', "takes out.bias too, which 'adamw' updates" },
        { '"muon", groups = { { "out.*", rest = true, momentum = 0.5 } }', "unknown field 'momentum'" },
        { '"muon", groups = { { rank = 1, momentum = 0.5 } }', "unknown field 'momentum'" },
        { '"adamw", groups = { { "out.*", rest = true } }', "unknown field 'rest'" },
        { '"adafactor", eps = { 1e-3 }', "eps takes two numbers >= 0" },
        { '"adafactor", eps = { 1e-200, 1e-3 }', "of which the square is 0 or denormal in f64" },
        { '"adafactor", d = 0.5', "d is 0.5, expected a number >= 1" } } do
        t.write(path, spec(case[1]))
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1, case[1])
        t.contains(result.err, case[2])
    end
end)

add("gagen list shows the cost of rows and columns", function(t)
    local listed = t.load("tests/lua/programs.lua")(t).gagen { "list", "optimizers" }.out
    t.contains(listed, "keeps row_var, col_var: 4 bytes per row and 4 per column in f32, 8 and 8 in f64; "
        .. "for vectors variance: 4 bytes per parameter in f32, 8 in f64")
    t.contains(listed, "keeps buf: 4 bytes per parameter in f32, 8 in f64, of what it updates; the rest as its")
end)

return tests
