-- Warnings of plausible mistakes: each comes for a wrong spec, alone, with its place, fix and name; train.allow
-- silences it; it does not come for the mended spec, for specs that only look alike, and for the shipped specs.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local shipped = dofile "tests/lua/shipped.lua"
local warnings = require "spec.warnings"

-- The lines of a small spec; a case replaces some of them.
local WORDS = { "data", "batch", "model", "loss", "optimizer", "schedule", "init", "train" }
local USUAL = {
    data = 'data { "csv", train = "tiny.csv", target = "last", split = { eval = 18 } }', batch = "batch (8)",
    model = 'model { linear "fc" { 8 }, layernorm "ln" {}, tanh {}, linear "out" { 3 } }',
    loss = 'loss "cross_entropy"',
    optimizer = 'optimizer { "adamw", lr = 1e-3 }', schedule = 'schedule "cosine"',
    init = 'init { { "*.bias", value = 0 } }', train = "train { epochs = 2, allow = {} }",
}

local function with(changes)
    local lines = {}
    for i, word in ipairs(WORDS) do lines[i] = changes[word] or USUAL[word] end
    return table.concat(lines, "\n") .. "\n"
end

local function open(t)
    local formats = t.load("tests/lua/formats.lua")(t)
    formats.write("warned/images", formats.idx({ 40, 4, 4 }, function(i) return i * 7 % 256 end))
    formats.write("warned/labels", formats.idx({ 40 }, function(i) return i % 3 end))
    formats.write("warned/text", ("to be, or not to be: "):rep(40))
    local tiny = host.read(formats.programs.folder() .. "/data/tiny.csv")
    formats.write("warned/same.csv", tiny)
    formats.write("warned/other.csv", (tiny:gsub("%.%d", ".5", 1)))
    return formats.programs
end

-- The lines of `gagen check` that end with the name of a warning, the command being successful.
local function warned(t, programs, text, ...)
    local path, found = programs.folder() .. "/warned.lua", {}
    t.write(path, text)
    local result = programs.gagen { "check", path, ... }
    t.equal(result.status, 0, text .. result.err)
    for line in result.err:gmatch("[^\n]*%[[%w_]+%]\n") do found[#found + 1] = line:sub(1, -2):gsub("^[^:]*/", "") end
    return found
end

local function images(fields)
    return ('data { "idx", train = { "warned/images", "warned/labels" }%s }'):format(fields)
end
local IMAGES = images ""
local function function_of(layers) return ("model(function(batch) return %s end)"):format(layers) end
local FLAT = 'model { flatten {}, linear "out" { 3 } }'

local TEXT = 'data { "text", train = "warned/text", context = 8 }'
local function gpt(attend)
    return ('model { embedding "wte" { 16, 8 }, linear "qkv" { 24 }, attend { heads = 2%s }, linear "out" { 16 } }')
        :format(attend)
end
local function ends_with(layer) return ('model { linear "out" { 3 }, %s }'):format(layer) end
local function normalised(layer) return ('model { linear "fc" { 8 }, %s, linear "out" { 3 } }'):format(layer) end
local function scaled(groups) return ('optimizer { "adamw", lr = 1e-3, groups = { %s } }'):format(groups) end
local function init(rules) return ("init { %s }"):format(rules) end
local function csv(eval) return ('data { "csv", train = "tiny.csv", eval = %q }'):format(eval) end
local DROPS = 'model { linear "fc" { 8 }, dropout(0.2), linear "out" { 3 } }'

-- wrong: specs with the line and the message of the warning; right: specs without it.
local CASES = {
    unscaled_images = {
        message = "data: images have values up to 255, and no scale, mean or std: add scale = 1/255", line = 1,
        wrong = { { data = IMAGES, model = FLAT },
            { data = IMAGES, model = 'model { conv2d "c" { 2, 3 }, flatten {}, linear "out" { 3 } }' },
            { data = IMAGES, model = function_of 'linear "out" { 3 } (reshape { 16 } (batch.input))' } },
        right = { { data = images ", scale = 1/255", model = FLAT }, { data = images ", mean = { 99 }", model = FLAT },
            { data = images ", std = { 255 }", model = FLAT }, { data = images ", scale = 1", model = FLAT },
            { data = IMAGES, model = function_of 'linear "out" { 3 } (flatten {} (batch.input / 255))' },
            { data = IMAGES, model = 'model { batchnorm "bn" {}, flatten {}, linear "out" { 3 } }' } },
    },
    softmax_before_cross_entropy = {
        message = "model: it ends with %s, and cross_entropy has a softmax of its own: leave %s out", line = 3,
        wrong = { { model = ends_with "softmax {}", "softmax", "softmax" },
            { model = ends_with "log_softmax {}", "log_softmax", "log_softmax" },
            { model = function_of 'reshape { 3 } (reshape { 1, 3 } (softmax(linear "out" { 3 } (batch.input))))',
                "softmax", "softmax" } },
        right = { { model = 'model { linear "fc" { 8 }, softmax {}, linear "out" { 3 } }' },
            { model = 'model { linear "fc" { 3 }, softmax {}, pick { axis = 2, index = 1 } }', loss = 'loss "mse"' } },
    },
    not_causal = {
        message = "attend: the target is the next id, and each query sees it: add causal = true", line = 3,
        wrong = { { data = TEXT, model = gpt "" }, { data = TEXT, model = gpt ", causal = false" },
            { data = TEXT, model = 'model { embedding "wte" { 16, 8 }, times(2) "h" { linear "qkv" { 24 }, '
                .. 'attend { heads = 2 } }, linear "out" { 16 } }' } },
        right = { { data = TEXT, model = gpt ", causal = true" },
            { model = 'model { linear "fc" { 48 }, reshape { 2, 24 }, attend { heads = 2 }, flatten {}, '
                .. 'linear "out" { 3 } }' } },
    },
    random_norm_weights = {
        message = "init: '%s' draws '%s', the weight of a norm, at random: put { \"%s\", value = 1 } before it",
        line = 7,
        wrong = { { init = init '{ "*.weight", normal = 0.02 }', "*.weight", "ln.weight", "ln.weight" },
            { init = init '{ "ln.*", uniform = 0.1 }', model = normalised 'rmsnorm "ln" {}', "ln.*", "ln.weight",
                "ln.weight" },
            { init = init '{ "*", normal = 0.02 }', model = normalised 'batchnorm "bn" {}', "*", "bn.weight",
                "bn.weight" },
            { init = init '{ "*.weight", normal = 0.02 }', model = normalised 'times(2) "h" { layernorm "ln" {} }',
                "*.weight", "h.*.ln.weight", "h.*.ln.weight" } },
        right = { { init = init '{ "ln.weight", value = 1 }, { "*.weight", normal = 0.02 }' },
            { init = init '{ "ln.*", "torch" }, { "*.weight", normal = 0.02 }' },
            { init = init '{ "fc.weight", normal = 0.02 }' } },
    },
    unusual_rate = {
        message = "%s: the highest rate of the run is %s, usual ones are %s: change %s, or what the schedule makes of "
            .. "it", line = 5,
        wrong = { { optimizer = 'optimizer { "adamw", lr = 3 }', "optimizer 'adamw'", "3", "1e-07 to 0.1", "lr" },
            { optimizer = 'optimizer { "adamw", lr = 1e-9 }', "optimizer 'adamw'", "1e-09", "1e-07 to 0.1", "lr" },
            { optimizer = 'optimizer { "sgd", lr = 100 }', "optimizer 'sgd'", "100", "1e-05 to 10", "lr" },
            { schedule = "schedule(function(t, base) return where(eq(t, 17), 5000, 1) * base end)",
                "optimizer 'adamw'", "5", "1e-07 to 0.1", "lr" },
            { optimizer = 'optimizer { "muon", lr = 0.02, rest = { "adamw", lr = 0.5 } }',
                "optimizer: rest 'adamw'", "0.5", "1e-07 to 0.1", "lr" },
            { optimizer = scaled '{ "ln.*", lr_scale = 1000 }, { "*", lr_scale = 2 }',
                "optimizer: group 1", "1", "1e-07 to 0.1", "lr or lr_scale" },
            { model = normalised 'times(2) "h" { linear "fc" { 8 } }', optimizer = scaled '{ "h.1.*", lr_scale = 200 }',
                "optimizer: group 1", "0.2", "1e-07 to 0.1", "lr or lr_scale" },
            { optimizer = scaled '{ "*", lr_scale = 1e-6 }', "optimizer: group 1", "1e-09", "1e-07 to 0.1",
                "lr or lr_scale" } },
        right = { { optimizer = scaled '{ "fc.*", lr_scale = 1e-6 }' },
            { optimizer = scaled '{ "fc.*", lr_scale = 1000, frozen = true }' },
            { optimizer = 'optimizer { "adamw", lr = 3, groups = { { "*", lr_scale = 1e-3 } } }' }, { optimizer = 'optimizer { "adamw", lr = 1 }',
            schedule = "schedule(function(t, base) return base * 1e-3 end)" },
            { optimizer = 'optimizer { "adamw", lr = 1e-3 }', schedule = 'schedule { "constant", warmup = 9 }' } },
    },
    dropout_short_training = {
        message = "dropout: training ends after %s of the 9 updates of an epoch, so that no row is seen twice: leave "
            .. "dropout out, or train for longer", line = 3,
        wrong = { { model = DROPS, train = "train { updates = 8, allow = {} }", "8" },
            { model = DROPS, train = "train { epochs = 0.5, allow = {} }", "4" },
            { model = 'model { linear "fc" { 48 }, reshape { 2, 24 }, attend { heads = 2, dropout = 0.1 }, flatten {}, '
                .. 'linear "out" { 3 } }', train = "train { updates = 1, allow = {} }", "1" } },
        right = { { model = DROPS, train = "train { updates = 9 }" }, { model = DROPS, train = "train { epochs = 1 }" },
            { model = DROPS, batch = 'batch (8) accumulate { 4, tail = "carry" }', train = "train { epochs = 1 }" },
            { model = DROPS:gsub("0.2", "0"), train = "train { updates = 2 }" }, { train = "train { updates = 2 }" } },
    },
    eval_on_training_rows = {
        message = "data: eval has the rows of '%s', and train has them %s: name other rows, or split = { eval = N } "
            .. "instead of eval", line = 1,
        wrong = { { data = csv "tiny.csv", "tiny.csv", "too" },
            { data = csv "warned/same.csv", "warned/same.csv", "as 'tiny.csv'" },
            { data = images ', scale = 1/255, eval = { "warned/images", "warned/labels" }', model = FLAT,
                "warned/images", "too" } },
        right = { { data = csv "warned/other.csv" } },
    },
}

add("every warning has cases", function(t)
    local n = 0
    for _ in next, CASES do n = n + 1 end
    t.equal(n, #warnings.list)
    for _, warning in ipairs(warnings.list) do assert(CASES[warning.name], warning.name) end
end)

for _, warning in ipairs(warnings.list) do
    local name = warning.name
    local case = CASES[name] or { wrong = {}, right = {} }
    add(name .. ": comes for wrong specs, allow silences it", function(t)
        local programs = open(t)
        for _, wrong in ipairs(case.wrong) do
            local text = with(wrong)
            t.equal(warned(t, programs, text), { ("warned.lua:%d: warning: %s [%s]"):format(case.line,
                case.message:format(table.unpack(wrong)), name) }, text)
            t.equal(warned(t, programs, (text:gsub("allow = {}", ("allow = { %q }"):format(name)))), {}, text)
        end
    end)
    add(name .. ": does not come for right specs", function(t)
        local programs = open(t)
        t.equal(warned(t, programs, with {}), {})
        for _, right in ipairs(case.right) do t.equal(warned(t, programs, with(right)), {}, with(right)) end
    end)
end

for _, spec in ipairs(shipped.list) do
    add(spec[1] .. ": no warning", function(t)
        t.equal(warned(t, shipped.open(t, spec[2]), shipped.text(t, spec[1])), {})
    end)
end

-- Rates of published recipes, torch's defaults among them.
local PUBLISHED = { adam = { 1e-3, 3e-4, 1e-6 }, adamw = { 6e-4, 2e-5, 5e-7 }, sgd = { 0.1, 3.2, 1e-4 },
    lion = { 1e-4, 3e-5 }, lars = { 0.1, 35 }, lamb = { 1.76e-3, 0.01 }, adafactor = { 1e-2, 1 }, muon = { 0.02, 0.24 },
    adadelta = { 1 }, adagrad = { 0.01, 1 }, rmsprop = { 0.01, 6.25e-5 }, nadam = { 2e-3 }, radam = { 1e-3 }, adamax = { 2e-3 } }

add("each optimizer says which rates are usual: its default and published ones", function(t)
    for name, rule in require("catalog.catalog").load().optimizers:each() do
        for _, field in ipairs(rule.fields) do
            local rates = field.name == "lr" and table.move(PUBLISHED[name] or {}, 1, 9, 2, { field.default or 0.1 })
            for _, rate in ipairs(rates or {}) do
                assert(field.usual[1] <= rate and rate <= field.usual[2], ("%s: %g"):format(name, rate))
            end
        end
    end
end)

add("a warning is given once, however many plans a budget makes", function(t)
    local programs = open(t)
    local text = with { optimizer = 'optimizer { "adamw", lr = 3 }', batch = 'batch { "auto", global = 8 }' }
    t.equal(#warned(t, programs, text .. 'memory { budget = "1GiB" }\n'), 1)
end)

add("the place of a value from --set is the option", function(t)
    local found = warned(t, open(t), with {}, "--set", "optimizer.lr=7")
    t.match(table.concat(found, "\n"), "^%-%-set optimizer.lr=7: warning: optimizer 'adamw': ")
end)

add("names that no warning has are refused", function(t)
    local programs = open(t)
    local path = programs.folder() .. "/warned.lua"
    for value, found in next, { ['"unscaled_image"'] = "'unscaled_image'", ["7"] = "a number" } do
        t.write(path, (with {}:gsub("allow = {}", ("allow = { %s }"):format(value))))
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1)
        t.contains(result.err, "warned.lua:8: train: allow has " .. found .. ", expected names of warnings: unsc")
        t.equal(result.err:find("did you mean 'unscaled_images'?", 1, true) ~= nil, value ~= "7")
    end
end)

return tests
