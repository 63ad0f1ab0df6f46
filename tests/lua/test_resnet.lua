-- ResNet-18 of the shipped specs, narrower, against PyTorch: the same initial values, images and settings
-- must give the same losses, gradients and statistics. The figures are made by tests/reference/resnet.py.
-- Invariant: no Python runs here; data are the script's formulas, settings stand in both.

local profile = require "emit.program.profile"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local FIGURES = "tests/reference/resnet_"
local WIDTH = { tutorial = 2, cifar10 = 3 }
local ROWS, EVAL, UPDATES = 64, 12, 10

-- CIFAR-10 records first .. first + count - 1 of a formula.
local function records(first, count)
    local list = {}
    for r = first, first + count - 1 do
        local record = { string.char(r * r % 10) }
        for k = 0, 3071 do
            record[k + 2] = string.char((r * 7919 + k * 104729 + (r * k) % 251 * 31) % 256)
        end
        list[#list + 1] = table.concat(record)
    end
    return table.concat(list)
end

-- The shipped spec with other data, settings and width; its model as it is.
local function spec(model, accumulate, precision)
    local text = host.read("specs/resnet18_" .. model .. ".lua")
    local count
    text, count = text:gsub("local width[^\n]*", ("local width, rows = %d, 8"):format(WIDTH[model]))
    assert(count == 1)
    text = text:match("^(.*)data       {") .. text:match("\nlocal kaiming.*\nloss  ") .. ' "cross_entropy"\n'
    return text .. ([[
data       { "cifar10", train = "formula_train.bin", eval = "formula_eval.bin", shuffle = false,
             mean = { .4914, .4822, .4465 }, std = { .2023, .1994, .2010 } }
batch      (8)
accumulate (%d)
optimizer  { "sgd", lr = 0.0005, momentum = 0.9, weight_decay = 5e-4 }
precision  "%s"
train      { updates = %d, seed = 1 }
eval       { every = %d }
]]):format(accumulate, precision, UPDATES, UPDATES)
end

local function build(t, model, accumulate, precision, more)
    local programs = t.load("tests/lua/programs.lua")(t)
    t.write(programs.folder() .. "/data/formula_train.bin", records(0, ROWS))
    t.write(programs.folder() .. "/data/formula_eval.bin", records(ROWS, EVAL))
    local name = ("resnet_%s_a%d_%s"):format(model, accumulate, precision)
    return programs, programs.build(name .. (more and "_more" or ""), spec(model, accumulate, precision) .. (more or ""))
end

-- ||a - b|| / ||b|| of each tensor.
local function norm_wise(programs, found, expected, bound)
    local x, y = programs.tensors(found), programs.tensors(expected)
    for name, tensor in next, y do
        local gap, size = 0, 0
        for i, v in ipairs(tensor.values) do
            gap, size = gap + (v - assert(x[name], name).values[i]) ^ 2, size + v * v
        end
        if not (gap <= bound ^ 2 * size) then
            error(("%s is off PyTorch's by %.3g of its norm, at most %.0e expected"):format(name,
                math.sqrt(gap / size), bound), 2)
        end
    end
end

local function losses(t, programs, p, options)
    local log, list = t.temp() .. "/log", {}
    local o = table.move(options, 1, #options, 3, { "--log", log })
    local dump = programs.dump(p, o)
    for _, event in ipairs(t.load("tests/lua/json.lua").lines(host.read(log))) do
        if event.event == "update" or event.event == "eval" then list[#list + 1] = event.loss end
    end
    return list, dump
end

-- Without multiply-adds each product is rounded too, so that a sum has twice as many roundings.
local function bound_of_gradient(t)
    local march = t.environment "GAGEN_TEST_MARCH" or profile.native(host.cpu())
    return profile.get(march).fma and 1e-4 or 2e-4
end

for _, model in ipairs { "tutorial", "cifar10" } do
    for _, accumulate in ipairs { 1, 4 } do
        for _, precision in ipairs { "f64", "f32" } do
            local short = (model == "tutorial") == ((accumulate == 4) == (precision == "f64"))
            add(("%s, A = %d, %s"):format(model, accumulate, precision), function(t)
                if not short and not t.all then t.not_run("long; make test-all runs it") end
                local programs, p = build(t, model, accumulate, precision)
                local figures = FIGURES .. model .. "/"
                local found, dump = losses(t, programs, p, { "--threads", 2, "--init", figures .. "init.safetensors" })
                local expected = programs.tensors(figures .. "losses.safetensors")[("a%d_%s"):format(accumulate,
                    precision)].values
                t.equal(#found, UPDATES + 1, "losses of the updates and of the evaluation")
                local bound = precision == "f64" and 1e-9 or 1e-3
                for i, loss in ipairs(found) do t.near(loss, expected[i], bound * expected[i]) end
                if precision == "f32" then
                    dump = programs.dump(p, { "--cycles", 1, "--init", figures .. "init.safetensors" })
                    norm_wise(programs, dump .. "/gradients.safetensors", figures .. "gradient_a" .. accumulate
                        .. ".safetensors", bound_of_gradient(t))
                elseif accumulate == 4 then     -- parameters, running statistics, how many batches they have seen
                    norm_wise(programs, dump .. "/parameters.safetensors", figures .. "a4_f64.safetensors", 1e-9)
                end
            end)
        end
    end
end

return tests
