-- Dropout: an element is dropped as a function of (seed, name, iteration, cycle, row, element), recomputed here; the
-- share of dropped elements; evaluations; the CUDA target.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local BATCH, COUNT, PROBE = 4, 3, { probe = true }

local function spec(more, rows, count)
    return ([[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 2, of = 5 } }
batch      (%d)
accumulate (%d)
model      { linear "in" { 12 }, tanh {}, dropout(0.3),
             times(3) "h" { residual { linear "fc1" { 20 }, tanh {}, dropout(0.2), linear "fc2" { 12 } } },
             dropout { p = 0.5 }, linear "out" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 40, seed = 7 }
precision  "f64"
]]):format(rows or BATCH, count or COUNT) .. (more or "")
end

local function with_probes(p) return { name = p.name, spec = p.spec, train = p.probe, folder = p.folder } end

-- Every element of y against x: dropped or scaled as the draws say.
local function check_mask(t, x, y, p, name, iteration, seed, cycle, micro)
    local draw = t.load("tests/lua/rng.lua")
    local width = #x.values // BATCH
    for i, value in ipairs(x.values) do
        local row, element = (i - 1) // width, (i - 1) % width
        local u = draw(seed, name, iteration, cycle, micro * BATCH + row, element)
        local expected = u >= p and value * (1 / (1 - p)) or 0.0
        t.equal(y.values[i], expected, ("%s, element %d"):format(name, i))
    end
end

add("an element is dropped by seed, name, iteration, cycle, row and element", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = with_probes(programs.build("random", spec(), PROBE))
    local checkpoint = t.temp()
    programs.train(p, { "--cycles", 2, "--checkpoint", checkpoint })
    local runs = {
        { seed = 7, cycle = 0, folder = programs.dump(p, { "--cycles", 1, "--threads", 3 }) },
        { seed = 123456789, cycle = 0, folder = programs.dump(p, { "--cycles", 1, "--seed", 123456789 }) },
        { seed = 7, cycle = 2, folder = programs.dump(p, { "--cycles", 3, "--resume", "latest", "--checkpoint",
            checkpoint }) },
    }
    for _, run in ipairs(runs) do
        for k = 0, COUNT - 1 do
            local v = programs.tensors(("%s/micro-%d.safetensors"):format(run.folder, k))
            local function check(x, y, rate, name, l)
                check_mask(t, v[x], v[y], rate, name, l or 0, run.seed, run.cycle, k)
            end
            check("tanh_out", "dropout_out", 0.3, "dropout")
            check("h_add_out.2", "dropout_out_2", 0.5, "dropout.2")
            check("d_h_in.0", "d_tanh_out", 0.3, "dropout")
            for l = 0, 2 do
                check("h_tanh_out." .. l, "h_dropout_out." .. l, 0.2, "h.%d.dropout", l)
                check("d_h_dropout_out." .. l, "d_h_tanh_out." .. l, 0.2, "h.%d.dropout", l)
            end
        end
    end
end)

add("the share of dropped elements is the probability", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local text = spec(nil, 64, 8)
    local p = with_probes(programs.build("random_rate", text, PROBE))
    local folder = programs.dump(p, { "--cycles", 1 })
    local function rate(name, probability)
        local dropped, n = 0, 0
        for k = 0, 7 do
            local y = programs.tensors(("%s/micro-%d.safetensors"):format(folder, k))[name]
            for _, v in ipairs(y.values) do dropped, n = dropped + (v == 0 and 1 or 0), n + 1 end
        end
        t.near(dropped / n, probability, 4 * math.sqrt(probability * (1 - probability) / n))
    end
    rate("dropout_out", 0.3)
    rate("dropout_out_2", 0.5)
    for l = 0, 2 do rate("h_dropout_out." .. l, 0.2) end
end)

add("an evaluation drops nothing", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function loss(name, text)
        local p = programs.build(name, text, PROBE)
        return programs.events(p, { "--eval" })[2].loss
    end
    local without = spec():gsub("dropout%b(),", ""):gsub("dropout %b{},", "")
    t.equal(without:find("dropout"), nil)
    t.equal(loss("random", spec()), loss("random_none", without))
end)

add("dropout(0) is no kernel", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("random_zero", (spec():gsub("dropout%b()", "dropout(0)"):gsub("p = 0.5", "p = 0")))
    for _, kernel in ipairs(programs.plan(p).kernels) do t.equal(kernel.name:find("dropout"), nil, kernel.name) end
end)

add("dropout refuses wrong arguments", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function refused(old, new, message)
        local text = spec():gsub(old, new)
        local path = programs.folder() .. "/random_refused.lua"
        t.write(path, text)
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1, text)
        t.contains(result.err, message)
    end
    refused("dropout%(0.3%)", "dropout(1)", "dropout: p is 1, expected a number >= 0 and < 1")
    refused("dropout%(0.3%)", "dropout(-0.1)", "dropout: p is -0.1, expected a number >= 0 and < 1")
    refused("dropout%(0.3%)", "dropout {}", "dropout: p is missing, expected a number")
    refused("dropout%(0.3%)", "dropout { 0.3, q = 1 }", "unknown field 'q'")
end)

return tests
