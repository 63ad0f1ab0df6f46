-- Metrics of an evaluation against their definitions on whole tensors: accuracy, and F1 of class 1 of two,
-- 2 tp / (2 tp + fp + fn). Rows with an ignored target are not counted.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local ROWS, WIDTH, IGNORE = 61, 4, -1          -- a last batch that is not full

local function value(i, j) return math.sin(2.3 * i * j + i) end
local function class(i) return i % 7 == 3 and IGNORE or (i * i // 5) % 2 end

local function data_file(t)
    local input, target = {}, {}
    for i = 1, ROWS do
        for j = 1, WIDTH do input[#input + 1] = value(i, j) end
        target[i] = class(i)
    end
    return t.load("tests/numeric/rows.lua").file { { "input", "F64", { ROWS, WIDTH }, input },
        { "target", "I32", { ROWS }, target } }
end

local function spec(more)
    return [[
name      "measured"
data      { "tensors", train = "measured.safetensors", eval = "measured.safetensors", shuffle = false, last = "pad" }
batch     (8)
model     { linear "out" { 2 } }
loss      { "cross_entropy", ignore = -1 }
optimizer { "sgd", lr = 0.1 }
train     { epochs = 1 }
eval      { every = "epoch", metrics = { "loss", "accuracy", "f1" } }
]] .. (more or "")
end

-- Weights and biases (two classes), and what they measure: the counts by the definitions.
local function case(t, weight, bias)
    local path, count = t.temp() .. "/init.safetensors", { tp = 0, fp = 0, fn = 0, tn = 0 }
    t.write(path, t.load("tests/numeric/rows.lua").file { { "out.weight", "F32", { 2, WIDTH }, weight },
        { "out.bias", "F32", { 2 }, bias } })
    for i = 1, ROWS do
        local logits = { bias[1], bias[2] }
        for c = 1, 2 do
            for j = 1, WIDTH do logits[c] = logits[c] + weight[(c - 1) * WIDTH + j] * value(i, j) end
        end
        local said, true_class = logits[2] > logits[1] and 1 or 0, class(i)
        if true_class ~= IGNORE then
            local kind = (said == true_class and "t" or "f") .. (said == 1 and "p" or "n")
            count[kind] = count[kind] + 1
        end
    end
    return path, count
end

local CASES = {
    { "some of both", { 0.5, -0.25, 1, 0.125, -0.5, 0.75, 0.25, 1 }, { 0, 0.125 } },
    { "never class 1", { 0.5, -0.25, 1, 0.125, -0.5, 0.75, 0.25, 1 }, { 9, 0 } },
    { "always class 1", { 0.5, -0.25, 1, 0.125, -0.5, 0.75, 0.25, 1 }, { 0, 9 } },
}

local function check(t, programs, p, env)
    for _, c in ipairs(CASES) do
        local path, n = case(t, c[2], c[3])
        local event = programs.events(p, { "--init", path, "--eval", env = env })[2]
        t.equal(event.event, "eval")
        t.equal(event.rows, ROWS)
        t.near(event.accuracy, (n.tp + n.tn) / (n.tp + n.tn + n.fp + n.fn), 1e-9)
        t.near(event.f1, n.tp > 0 and 2 * n.tp / (2 * n.tp + n.fp + n.fn) or 0, 1e-9)
    end
end

local function open(t)
    local programs, environment = dofile("tests/lua/devices.lua").open(t)
    t.write(programs.folder() .. "/data/measured.safetensors", data_file(t))
    return programs, environment
end

add("accuracy and F1", function(t)
    local programs = open(t)
    local _, n = case(t, CASES[1][2], CASES[1][3])
    assert(n.tp > 5 and n.fp > 5 and n.fn > 5 and n.tn > 5 and n.fp ~= n.fn, "a case that says little")
    check(t, programs, programs.build("metrics", spec()))
end)

add("accuracy and F1 on a device", function(t)
    local programs, environment = open(t)
    check(t, programs, programs.build("metrics_cuda", spec 'target "cuda"\n'),
        environment(dofile("tests/lua/devices.lua").checked(1)))
end)

add("a program without F1 does not log it", function(t)
    local programs = open(t)
    local p = programs.build("metrics_loss", (spec():gsub(', "accuracy", "f1"', "")))
    local event = programs.events(p, { "--eval" })[2]
    t.equal({ event.event, event.accuracy, event.f1 }, { "eval" })
end)

-- `gagen check` refuses the word eval where data has no rows for it (tests/e2e/refuse/eval_without_rows.lua).
add("the event of an evaluation names its rows: train where data has none for evaluation", function(t)
    local programs = open(t)
    local text = spec():gsub('eval = "[^"]*", ', ""):gsub("\neval[^\n]*", "")
    local event = programs.events(programs.build("metrics_train", text), { "--eval" })[2]
    local other = programs.events(programs.build("metrics", spec()), { "--eval" })[2]
    t.equal({ event.event, event.split, event.rows, event.loss }, { "eval", "train", ROWS, other.loss })
    t.equal({ other.split, other.rows }, { "eval", ROWS })
end)

-- The mean of -log softmax over the counted targets, e to it.
local function perplexity(weight, bias)
    local sum, n = 0, 0
    for i = 1, ROWS do
        local logits, target = { bias[1], bias[2] }, class(i)
        for c = 1, 2 do
            for j = 1, WIDTH do logits[c] = logits[c] + weight[(c - 1) * WIDTH + j] * value(i, j) end
        end
        if target ~= IGNORE then
            sum, n = sum + math.log(math.exp(logits[1]) + math.exp(logits[2])) - logits[target + 1], n + 1
        end
    end
    return math.exp(sum / n)
end

add("perplexity, on both targets", function(t)
    local programs, environment = open(t)
    local text = spec():gsub('"loss", "accuracy", "f1"', '"perplexity"') .. 'precision "f64"\n'
    for target, env in next, { c = false, cuda = environment() } do
        local p = programs.build("metrics_perplexity_" .. target, text .. ('target "%s"\n'):format(target))
        for _, c in ipairs(CASES) do
            local event = programs.events(p, { "--init", (case(t, c[2], c[3])), "--eval", env = env or nil })[2]
            t.near(event.perplexity, perplexity(c[2], c[3]), 1e-8 * event.perplexity)
            t.equal(event.loss, nil)
        end
    end
end)

add("a perplexity over ranks is e to the loss of all rows", function(t)
    local programs = open(t)
    local text = spec():gsub('"loss", "accuracy", "f1"', '"perplexity"') .. 'parallel "ddp"\n'
    local p = programs.build("metrics_perplexity_ranks", text, { comm = "mpi" })
    for _, ranks in ipairs { 1, 2 } do
        local path = case(t, CASES[1][2], CASES[1][3])
        local event = programs.events(p, { "--init", path, "--eval", ranks = ranks })[2]
        t.near(event.perplexity, perplexity(CASES[1][2], CASES[1][3]), 1e-5)
    end
end)

add("a perplexity of another loss is refused", function(t)
    local programs = open(t)
    local path = programs.folder() .. "/perplexity_refused.lua"
    for fields, text in next, { ['"cross_entropy", label_smoothing = 0.1'] = "the loss has label_smoothing",
        ['"cross_entropy", class_weights = { 1, 2 }'] = "the loss has class_weights",
        ['"cross_entropy", weight = "sum"'] = 'the loss has weight = "sum"',
        ["function(out, batch) return out end"] = "the loss is none over classes" } do
        t.write(path, (spec():gsub('{ "cross_entropy"', "{ " .. fields):gsub('"accuracy", "f1"', '"perplexity"')
            :gsub(", ignore = %-1", fields:find "^function" and "" or "%0")))
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1)
        t.contains(result.err, "perplexity_refused.lua:8: eval: perplexity is that of a plain cross_entropy, but " .. text)
    end
end)

-- Targets that are numbers: the class of each row and its first value.
local function number(i) return value(i, 1) + (i * i // 5) % 2 end

add("mae and rmse, on both targets and over ranks", function(t)
    local programs, environment = open(t)
    local input, target, weight, bias = {}, {}, { 0.5, -0.25, 1, 0.125 }, 0.75
    local errors, squares = 0, 0
    for i = 1, ROWS do
        local y = bias
        for j = 1, WIDTH do
            input[#input + 1] = value(i, j)
            y = y + weight[j] * value(i, j)
        end
        target[i] = number(i)
        errors, squares = errors + math.abs(y - target[i]), squares + (y - target[i]) ^ 2
    end
    local rows = t.load("tests/numeric/rows.lua")
    t.write(programs.folder() .. "/data/measured_numbers.safetensors", rows.file {
        { "input", "F64", { ROWS, WIDTH }, input }, { "target", "F64", { ROWS }, target } })
    local init = t.temp() .. "/init.safetensors"
    t.write(init, rows.file { { "out.weight", "F32", { 1, WIDTH }, weight }, { "out.bias", "F32", { 1 }, { bias } } })
    local text = spec():gsub("measured.safetensors", "measured_numbers.safetensors"):gsub('"out" { 2 }', '"out" { 1 }')
        :gsub('"cross_entropy", ignore = %-1', '"smooth_l1"'):gsub('"loss", "accuracy", "f1"', '"mae", "rmse"')
        .. 'precision "f64"\n'
    local function check(p, o)
        table.move({ "--init", init, "--eval" }, 1, 3, 1, o)
        local event = programs.events(p, o)[2]
        t.near(event.mae, errors / ROWS, 1e-8)
        t.near(event.rmse, math.sqrt(squares / ROWS), 1e-8)
        t.equal({ event.rows, event.loss }, { ROWS })
    end
    check(programs.build("metrics_numbers_cuda", text .. 'target "cuda"\n'), { env = environment() })
    local p = programs.build("metrics_numbers", text .. 'parallel "ddp"\n', { comm = "mpi" })
    for ranks = 1, 2 do check(p, { ranks = ranks }) end
end)

-- Seven logits per row, the roots of the data: equal ones, rows without numbers, targets that are ignored.
local CLASSES = 7

local function logit(i, c) return i % 9 == 5 and 0 / 0 or math.floor(2.5 * math.sin(1.7 * i * c + i)) + 3 end

local function one_of_seven(i) return i % 11 == 3 and IGNORE or i * i // 3 % CLASSES end

-- The share of counted targets with fewer than five greater logits, and how many of the hits are ties.
local function top_five()
    local hits, counted, ties = 0, 0, 0
    for i = 1, ROWS do
        local own = one_of_seven(i) ~= IGNORE and logit(i, one_of_seven(i) + 1)
        if own then
            local greater, equal = 0, 0
            for c = 1, CLASSES do
                greater, equal = greater + (logit(i, c) > own and 1 or 0), equal + (logit(i, c) == own and 1 or 0)
            end
            counted = counted + 1
            if own == own and greater < 5 then
                hits, ties = hits + 1, ties + (greater + equal > 5 and 1 or 0)
            end
        end
    end
    return hits / counted, ties
end

local function top_five_case(t, programs)
    local input, target, one = {}, {}, {}
    for i = 1, ROWS do
        for c = 1, CLASSES do input[#input + 1] = logit(i, c) >= 0 and logit(i, c) ^ 2 or -1 end
        target[i] = one_of_seven(i)
    end
    for k = 1, CLASSES * CLASSES do one[k] = k % (CLASSES + 1) == 1 and 1 or 0 end
    local rows = t.load("tests/numeric/rows.lua")
    t.write(programs.folder() .. "/data/measured_seven.safetensors", rows.file {
        { "input", "F64", { ROWS, CLASSES }, input }, { "target", "I32", { ROWS }, target } })
    local init = t.temp() .. "/init.safetensors"
    t.write(init, rows.file { { "out.weight", "F32", { CLASSES, CLASSES }, one } })
    return init, (spec():gsub("measured.safetensors", "measured_seven.safetensors")
        :gsub('linear "out" { 2 }', 'sqrt {}, linear "out" { 7, bias = false }'):gsub('"loss", "accuracy", "f1"', '"top5"')
        :gsub("ignore = %-1", "%0, class_weights = { 1, 2, 3, 4, 5, 6, 7 }"))
end

add("top5, of whole and chunked logits, on both targets and over ranks", function(t)
    local programs, environment = open(t)
    local init, text = top_five_case(t, programs)
    local share, ties = top_five()
    assert(share > 0.5 and share < 0.95 and ties > 3, "a case that says little")
    local function check(name, more, how, o)
        local p = programs.build("metrics_top5_" .. name, text .. more, how)
        local event = programs.events(p, { "--init", init, "--eval", env = o.env, ranks = o.ranks })[2]
        t.near(event.top5, share, 1e-9)
        t.equal({ event.rows, event.accuracy }, { ROWS })
    end
    check("whole", "", nil, {})
    local chunked = 'memory { logits = "chunked", logits_rows = 3 }\n'
    check("chunked", chunked .. 'parallel "ddp"\n', { comm = "mpi" }, { ranks = 2 })
    check("half", 'precision "bf16"\n', nil, {})
    check("cuda", 'target "cuda"\n', nil, { env = environment() })
    check("cuda_chunked", chunked .. 'target "cuda"\n', nil, { env = environment() })
end)

add("top5 of five classes is refused", function(t)
    local programs = open(t)
    local path = programs.folder() .. "/top5_refused.lua"
    t.write(path, (spec():gsub('"out" { 2 }', '"out" { 5 }'):gsub('"accuracy", "f1"', '"top5"')))
    local result = programs.gagen { "check", path }
    t.equal(result.status, 1)
    t.contains(result.err, "top5_refused.lua:8: eval: top5 of 5 classes is always 1: expected a model of 6 or more, or "
        .. '"accuracy"')
end)

-- A spec of two outputs with the metric r2, its first parameters, and what they measure. Targets are of size 1e8 and
-- differ by about 1, so that a difference of sums of their squares would have no digit right.
local function r2_case(t, programs)
    local input, target, weight, bias = {}, {}, { 0.5, -0.25, 1, 0.125, -0.5, 0.75, 0.25, 1 }, { 1e8 + 0.5, 1e8 }
    local mean, squares, spread = 0, 0, 0
    for i = 1, ROWS do
        for j = 1, WIDTH do input[#input + 1] = value(i, j) end
        for k = 1, 2 do
            target[#target + 1] = 1e8 + (number(i) + k * value(i, 3)) // 2 ^ -20 * 2 ^ -20
            mean = mean + (target[#target] - 1e8) / (2 * ROWS)
        end
    end
    for i = 1, ROWS do
        for k = 1, 2 do
            local y, wanted = bias[k] - 1e8, target[2 * i - 2 + k] - 1e8
            for j = 1, WIDTH do y = y + weight[(k - 1) * WIDTH + j] * value(i, j) end
            squares, spread = squares + (y - wanted) ^ 2, spread + (wanted - mean) ^ 2
        end
    end
    local rows = t.load("tests/numeric/rows.lua")
    t.write(programs.folder() .. "/data/measured_r2.safetensors", rows.file {
        { "input", "F64", { ROWS, WIDTH }, input }, { "target", "F64", { ROWS, 2 }, target } })
    local init = t.temp() .. "/init.safetensors"
    t.write(init, rows.file { { "out.weight", "F64", { 2, WIDTH }, weight }, { "out.bias", "F64", { 2 }, bias } })
    return init, 1 - squares / spread, (spec():gsub("measured.safetensors", "measured_r2.safetensors")
        :gsub('"cross_entropy", ignore = %-1', '"mse"'):gsub('"loss", "accuracy", "f1"', '"r2"')) .. 'precision "f64"\n'
end

add("r2 of targets with a large mean, on both targets and over ranks", function(t)
    local programs, environment = open(t)
    local init, wanted, text = r2_case(t, programs)
    local function check(p, o)
        table.move({ "--init", init, "--eval" }, 1, 3, 1, o)
        local event = programs.events(p, o)[2]
        t.near(event.r2, wanted, 1e-6)
        t.equal({ event.rows, event.loss }, { ROWS })
    end
    check(programs.build("metrics_r2_cuda", text .. 'target "cuda"\n'), { env = environment() })
    local p = programs.build("metrics_r2", text .. 'parallel "ddp"\n', { comm = "mpi" })
    for ranks = 1, 2 do check(p, { ranks = ranks }) end
end)

add("r2 of whole numbers; of equal ones it is nan", function(t)
    local programs = open(t)
    local function data(target)
        local input, targets = {}, {}
        for i = 1, 12 do input[i], targets[i] = i, target(i) end
        t.write(programs.folder() .. "/data/measured_whole.safetensors", t.load("tests/numeric/rows.lua").file {
            { "input", "F64", { 12, 1 }, input }, { "target", "I32", { 12 }, targets } })
    end
    local function line(i) return 2 * i + (i % 3 == 0 and 3 or 0) end
    data(line)
    local text = spec():gsub("measured.safetensors", "measured_whole.safetensors"):gsub('"out" { 2 }', '"out" { 1 }')
        :gsub('"cross_entropy", ignore = %-1', '"mse"'):gsub('"loss", "accuracy", "f1"', '"r2"')
    local p, init = programs.build("metrics_r2_whole", text), t.temp() .. "/init.safetensors"
    t.write(init, t.load("tests/numeric/rows.lua").file { { "out.weight", "F32", { 1, 1 }, { 2 } },
        { "out.bias", "F32", { 1 }, { 0 } } })
    local function r2() return programs.events(p, { "--init", init, "--eval" })[2].r2 end
    local mean, spread = 0, 0
    for i = 1, 12 do mean = mean + line(i) / 12 end
    for i = 1, 12 do spread = spread + (line(i) - mean) ^ 2 end
    t.near(r2(), 1 - 4 * 9 / spread, 1e-9)
    data(function() return 7 end)
    t.equal(r2(), "nan")
end)

add("errors of a loss that compares no numbers are refused", function(t)
    local programs = open(t)
    local path = programs.folder() .. "/errors_refused.lua"
    for _, metric in ipairs { "mae", "rmse", "r2" } do
        t.write(path, (spec():gsub('"accuracy", "f1"', ('"%s"'):format(metric))))
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1)
        t.contains(result.err, ("errors_refused.lua:8: eval: %s needs a loss that compares numbers: mse or smooth_l1")
            :format(metric))
    end
end)

add("each metric says whether a lower or a higher value is better", function(t)
    local known = require("catalog.catalog").load()
    local found = {}
    for name in known.metrics:each() do
        found[name] = require("spec.metrics").better({ catalog = known }, name)
    end
    t.equal(found, { loss = "lower", accuracy = "higher", f1 = "higher", perplexity = "lower", mae = "lower",
        rmse = "lower", top5 = "higher", r2 = "higher" })
end)

add("a schedule may look at a loss that is not logged", function(t)
    local programs = open(t)
    local text = spec():gsub("epochs = 1", "updates = 12"):gsub('every = "epoch"', "every = 2")
        .. 'schedule { "plateau", factor = 0.5, patience = 0, threshold = 0.2 }\n'
    local function events(name, metrics)
        return programs.events(programs.build("metrics_plateau_" .. name,
            (text:gsub('"loss", "accuracy", "f1"', metrics))), {})
    end
    local shown, hidden = events("shown", '"loss", "f1"'), events("hidden", '"f1"')
    local first, last
    for i, event in ipairs(shown) do
        first, last = first or event.lr, event.lr or last
        t.equal({ hidden[i].event, hidden[i].lr, hidden[i].f1 }, { event.event, event.lr, event.f1 })
        if event.event == "eval" then t.equal({ type(event.loss), type(hidden[i].loss) }, { "number", "nil" }) end
    end
    assert(last < first, "the schedule lowers the rate")
end)

-- The output of a loop of tests/e2e that calls the library of program p.
local function driven(t, programs, p, loop, argument)
    local drive = p.folder .. "/drive"
    local made = t.run { "cc", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-I" .. p.folder, "-o", drive,
        "tests/e2e/" .. loop, p.folder .. "/libmeasured.a", "-ljansson", "-lz", "-lm", "-pthread" }
    t.equal(made.status, 0, made.err)
    local result = t.run { drive, argument, env = { "GAGEN_DATA=" .. t.root .. "/" .. programs.folder() .. "/data" } }
    t.equal(result.status, 0, result.err)
    return result
end

add("the sums of errors of the library", function(t)
    local programs = open(t)
    local init, wanted, text = r2_case(t, programs)
    local p = programs.build("metrics_library_errors", (text:gsub('"r2"', '"mae", "rmse", "r2", '
        .. "below = function(out, batch) return lt(out, batch.target) end")), { lib = true })
    local event = programs.events(p, { "--init", init, "--eval" })[2]
    local mae, rmse, r2, below = driven(t, programs, p, "errors.c", init).out:match "^(%S+) (%S+) (%S+) (%S+)\n$"
    t.near(tonumber(r2), wanted, 1e-6)
    for found, logged in next, { [mae] = event.mae, [rmse] = event.rmse, [r2] = event.r2, [below] = event.below } do
        t.near(tonumber(found), logged, 1e-9)
    end
    assert(event.below > 0.2 and event.below < 0.8)
end)

add("the counts of the library", function(t)
    local programs = open(t)
    local p = programs.build("metrics_library", spec(), { lib = true })
    local result = driven(t, programs, p, "metrics.c")
    local counted, correct, tp, fp, fn = result.out:match("^(%d+) (%d+) (%d+) (%d+) (%d+)\n$")
    local expected, positive = 0, 0
    for i = 1, ROWS do
        expected = expected + (class(i) ~= IGNORE and 1 or 0)
        positive = positive + (class(i) == 1 and 1 or 0)
    end
    t.equal(tonumber(counted), expected)
    t.equal(tp + fn, positive)
    t.equal(counted - correct, fp + fn)
    local seen = programs.events(programs.build("metrics", spec()), { "--eval" })[2]
    t.near(seen.f1, 2 * tp / (2 * tp + fp + fn), 1e-9)
    t.near(seen.accuracy, correct / counted, 1e-9)
end)

return tests
