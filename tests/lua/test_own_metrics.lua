-- Metrics that are functions of the spec, against their definitions on whole tensors: the mean of what they give for the
-- rows of an evaluation, by the weights of the losses.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local ROWS, WIDTH, PLACES, IGNORE = 29, 4, 3, -1          -- a last batch that is not full

local TABLE = { 0.5, -0.25, 1, 0.125, -0.5, 0.75, 0.25, 1, -1, 0.5, 0.75, 0.25, 2, -0.125, 0.375, -2, 1, 1.5, 0, -0.75 }

local function id(i, k) return (i * i + 3 * k) % 5 end

-- Some targets of a row are ignored, in some rows all.
local function class(i, k) return (i % 5 == 2 or (i + k) % 4 == 1) and IGNORE or (i + k * k) % WIDTH end

local function logit(i, k, c) return TABLE[id(i, k) * WIDTH + c] end

local function loss(i, k)
    local sum = 0
    for c = 1, WIDTH do sum = sum + math.exp(logit(i, k, c)) end
    return class(i, k) == IGNORE and 0 or math.log(sum) - logit(i, k, class(i, k) + 1)
end

local WEIGHTS = { 1, 3, 0.5, 2 }

local SPEC = [[
name      "values"
data      { "tensors", train = "own.safetensors", eval = "own.safetensors", shuffle = false, last = "pad" }
batch     (4)
model     { embedding "out" { 5, 4 } }
loss      { "cross_entropy", ignore = -1, class_weights = { 1, 3, 0.5, 2 }, weight = %q }
optimizer { "sgd", lr = 0.1 }
train     { epochs = 1 }
precision "f64"
eval      { every = "epoch", metrics = { "loss",
    places = function(out, batch) return cross_entropy { ignore = -1 } (out, batch.target) end,
    largest = { function(out, batch) return square(out) end, better = "higher" } } }
]]

-- The two metrics of SPEC, computed here: one of the losses of places, one of all logits of a row.
local function expected(weight)
    local places, largest, total = 0, 0, 0
    for i = 1, ROWS do
        local of_row, of_losses, squares = 0, 0, 0
        for k = 1, PLACES do
            local w = class(i, k) == IGNORE and 0 or WEIGHTS[class(i, k) + 1]
            of_row, of_losses = of_row + w, of_losses + w * loss(i, k)
            for c = 1, WIDTH do squares = squares + logit(i, k, c) ^ 2 / (PLACES * WIDTH) end
        end
        if of_row > 0 then
            local by = weight == "sample" and 1 / of_row or 1
            places, largest = places + by * of_losses, largest + by * of_row * squares
            total = total + by * of_row
        end
    end
    return places / total, largest / total
end

local function open(t)
    local programs, environment = dofile("tests/lua/devices.lua").open(t)
    local rows, input, target = t.load("tests/numeric/rows.lua"), {}, {}
    for i = 1, ROWS do
        for k = 1, PLACES do
            input[#input + 1], target[#target + 1] = id(i, k), class(i, k)
        end
    end
    t.write(programs.folder() .. "/data/own.safetensors", rows.file {
        { "input", "I32", { ROWS, PLACES }, input }, { "target", "I32", { ROWS, PLACES }, target } })
    local init = t.temp() .. "/init.safetensors"
    t.write(init, rows.file { { "out.weight", "F64", { 5, WIDTH }, TABLE } })
    return programs, environment, init
end

local function build(programs, weight, more, how)
    return programs.build("own_metrics_" .. weight .. more:gsub("%A", ""), SPEC:format(weight) .. more, how)
end

add("the mean of values by the weights of targets, on both targets and over ranks", function(t)
    local programs, environment, init = open(t)
    local places, largest = expected "token"
    assert(math.abs(places - expected "sample") > 1e-3, "a case that says little")
    local function check(p, o)
        table.move({ "--init", init, "--eval" }, 1, 3, 1, o)
        local event = programs.events(p, o)[2]
        t.near(event.places, places, 1e-12)
        t.near(event.largest, largest, 1e-12)
        t.near(event.loss, places, 1e-12)
        t.equal(event.rows, ROWS)
    end
    check(build(programs, "token", 'target "cuda"\n'), { env = environment() })
    local p = build(programs, "token", 'parallel "ddp"\n', { comm = "mpi" })
    for ranks = 1, 2 do check(p, { ranks = ranks }) end
end)

add("with weight = sample each row that counts weighs 1, on both targets", function(t)
    local programs, environment, init = open(t)
    local places, largest = expected "sample"
    for more, env in next, { [""] = false, ['target "cuda"\n'] = environment() } do
        local event = programs.events(build(programs, "sample", more), { "--init", init, "--eval", env = env or nil })[2]
        t.near(event.places, places, 1e-12)
        t.near(event.largest, largest, 1e-12)
    end
end)

add("a lower value is better, unless the function's table says otherwise", function(t)
    local programs = open(t)
    local path = programs.folder() .. "/own_better.lua"
    t.write(path, SPEC:format "token")
    local _, c = require "spec.load".load(path, {}, {})
    local metrics = require "spec.metrics"
    t.equal({ metrics.better(c, "places"), metrics.better(c, "largest"), metrics.better(c, "loss") },
        { "lower", "higher", "lower" })
end)

add("metrics of a function's loss, of named outputs, in 16 bits", function(t)
    local programs = open(t)
    local p = programs.build("own_metrics_named", [[
data      { "csv", train = "tiny.csv", eval = "tiny.csv", target = "last" }
batch     (5)
model     (function(batch) return { a = linear "a" { 3 } (batch.input), b = linear "b" { 2 } (batch.input) } end)
loss      (function(out, batch) return cross_entropy(out.a, batch.target) end)
optimizer { "sgd", lr = 0 }
precision "bf16"
train     { updates = 1 }
eval      { every = 1, metrics = { "loss", same = function(out, batch) return cross_entropy(out.a, batch.target) end,
    b = function(out) return out.b end, twice = function(out) return 2 * out.b end } }
]])
    local event = programs.events(p, { "--eval" })[2]
    t.near(event.same, event.loss, 1e-6)
    t.near(event.twice, 2 * event.b, 1e-6)
    assert(math.abs(event.b) > 1e-3)
    local run = t.run { p.train, "--eval" }
    t.match(run.out, "eval 0 loss [%d.]+ b %-?[%d.e-]+ same [%d.]+ twice %-?[%d.e-]+ rows %d+\n")
end)

add("a function that is no metric is refused", function(t)
    local programs = open(t)
    local path = programs.folder() .. "/own_refused.lua"
    local function refused(metrics, text, more)
        t.write(path, SPEC:format("token"):gsub("metrics = .*", function() return "metrics = " .. metrics .. " }\n" end)
            .. (more or ""))
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1, metrics)
        t.contains(result.err, "own_refused.lua:9: " .. text)
    end
    local f = "function(out) return out end"
    refused("{ " .. f .. " }", "eval: a metric is a function without a name, expected metrics = { NAME = function(out, "
        .. "batch) ... end }")
    refused("{ mine = 3 }", "eval: metric 'mine' is no function, expected NAME = function(out, batch) ... end")
    refused("{ loss = " .. f .. " }", "eval: metric 'loss' is one of gagen's, expected another name for a function")
    refused("{ rows = " .. f .. " }", "eval: metric 'rows': expected a name of small letters, digits and _")
    refused("{ best = " .. f .. " }", "eval: metric 'best': expected a name of small letters, digits and _")
    refused("{ Mine = " .. f .. " }", "eval: metric 'Mine': expected a name of small letters, digits and _")
    refused("{ mine = { " .. f .. ', better = "more" } }', "eval: metric 'mine': better is 'more', expected one of "
        .. "'lower', 'higher'")
    refused("{ mine = { " .. f .. ", worse = 1 } }", "eval: metric 'mine': unknown field 'worse'")
    refused("{ mine = function() return 3 end }", "eval: mine: the function must return a tensor, found a number")
    refused("{ mine = function(out, batch) return batch.target end }",
        "eval: mine gives whole numbers, expected real ones")
    refused("{ mine = function(out) return out.a end }", "eval: mine: the model gives one tensor, found out.a")
    refused('{ mine = function(out) return linear "x" { 2 } (out) end }',
        "eval: mine: the function makes parameters, which nothing trains: expected layers without any")
    local many = {}
    for i = 1, 17 do many[i] = ("m%d = %s"):format(i, f) end
    refused("{ " .. table.concat(many, ", ") .. " }", "eval: metrics are 17, expected at most 16")
    local result = programs.gagen { "check", path, "--set", 'eval.metrics={"loss",other={}}' }
    t.contains(result.err, "eval: metric 'other' is no function, expected NAME = function(out, batch) ... end")
    result = programs.gagen { "check", path, "--set", "eval.metrics={m1=3}" }
    t.contains(result.err, "eval: metric 'm1' is no function, expected NAME = function(out, batch) ... end")
    t.equal(programs.gagen { "check", path, "--set", "eval.metrics={m1={}}" }.status, 0)
end)

add("chunked logits are never whole for a function", function(t)
    local programs = open(t)
    local path = programs.folder() .. "/own_chunked.lua"
    t.write(path, SPEC:format("token") .. 'memory { logits = "chunked", logits_rows = 3 }\n')
    local text = 'memory: logits = "chunked" is for loss "cross_entropy" of a model that ends in linear or unembed, here '
    t.contains(programs.gagen { "check", path }.err, text .. "the model does not end in linear or unembed")
    t.write(path, (host.read(path):gsub('5, 4 } }', '5, 4 }, linear "last" { 4 } }')))
    t.contains(programs.gagen { "check", path }.err, text .. "a metric of the spec reads the model's output")
    t.equal(programs.gagen { "check", path, "--set", 'eval.metrics={"loss"}' }.status, 0)
end)

return tests
