-- Losses of the catalog in a function of the word loss: values against their formulas, gradients against differences,
-- against the sum of two programs and against the word's own loss; refusals.
local tests = {}
local function add(name, f)
    tests[#tests + 1] = { name, function(t) f(t, t.load("tests/numeric/numeric.lua")(t)) end }
end

-- Two heads on one layer; the targets are the classes 0, 1, 2 in turn, which are numbers for the second head.
local HEADS = [[(function(batch)
    local h = tanh(linear "a" { 5 } (batch.input))
    return { logits = linear "b" { 3 } (h), number = linear "c" { 1 } (h) }
end)]]
local CLASS = "cross_entropy { label_smoothing = 0.2, class_weights = { 0.5, 2, 1 }, ignore = 1 } "
    .. "(out.logits, batch.target)"
local NUMBER = "0.1 * smooth_l1 { beta = 0.5 } (out.number, batch.target)"

local function case(loss, more)
    local c = { ids = true, model = HEADS, accumulate = "(2)", batch = 6, rows = 12,
        loss = ("{ function(out, batch) return %s end }"):format(loss) }
    for key, value in next, more or {} do c[key] = value end
    return c
end

add("two losses of one model: every gradient agrees with differences", function(t, numeric)
    local _, report = numeric.differences(case(CLASS .. " + " .. NUMBER))
    for _, name in ipairs { "a.weight", "b.bias", "c.weight" } do t.contains("\n" .. report, "\n" .. name .. ": ok") end
end)

add("two losses of one model: the gradient is the sum of two programs'", function(t, numeric)
    local function gradient(loss) return numeric.build(case(loss)):gradient() end
    local both, first = gradient(CLASS .. " + " .. NUMBER), gradient(CLASS .. " + 0 * " .. NUMBER)
    local second = gradient(("0 * %s + %s"):format(CLASS, NUMBER))
    for k, tensor in ipairs(both) do
        local largest = 0
        for i, x in ipairs(tensor.values) do
            t.near(x, first[k].values[i] + second[k].values[i], 1e-14)
            largest = math.max(largest, math.abs(x))
        end
        assert(largest > 1e-3, tensor.name .. " has a gradient")
    end
end)

-- One gradient over the other, which is the same number for all elements.
local function ratio(t, a, b)
    local result = a[1].values[1] / b[1].values[1]
    for k, tensor in ipairs(a) do
        for i, x in ipairs(tensor.values) do t.near(x, result * b[k].values[i], 1e-14) end
    end
    return result
end

-- The word divides by what counts, a function by the number of values. 2 of 12 targets are ignored.
add("a loss alone is that of the word, but for the divisor", function(t, numeric)
    local function gradient(loss, outputs)
        local model = (' { linear "a" { %d } }'):format(outputs or 3)
        return numeric.build(case("", { model = model, loss = loss })):gradient()
    end
    for fields, wanted in next, { ["label_smoothing = 0.2"] = 12 / 10, ["ignore = -7"] = 12 / 10,
        ["class_weights = { 0.5, 2, 1 }, label_smoothing = 0.1, ignore = 1"] = false } do
        local found = ratio(t, gradient(('{ "cross_entropy", %s }'):format(fields)), gradient(
            ("{ function(out, batch) return cross_entropy { %s } (out, batch.target) end }"):format(fields)))
        if wanted then t.near(found, wanted, 1e-12) end
    end
    local own = "{ function(out, batch) return mse(out, batch.target) end }"
    t.near(numeric.distance(gradient('"mse"', 1), gradient(own, 1)), 0, 0)
end)

local ONE = '{ linear "a" { 3 } }'
local SPEC = [[
data       { "tensors", train = "tiny.safetensors", shuffle = false }
batch      (5)
accumulate (2)
model      { linear "a" { 3 } }
loss       { function(out, batch)
    return cross_entropy { label_smoothing = 0.25 } (out, batch.target)
        + 0.5 * cross_entropy { class_weights = { 0.5, 0, 2 } } (2 * out, batch.target)
end%s }
optimizer  { "sgd", lr = 0.1 }
precision  "f64"
train      { updates = 1 }
target     "%s"
]]

-- The loss of the first ten rows by torch's formulas, mean over rows.
local function wanted_loss(weight, bias, ignore)
    local total, weights = 0, { 0.5, 0, 2 }
    for i = 1, 10 do
        local logits, target = {}, (i - 1) % 3
        for c = 1, 3 do
            logits[c] = bias[c]
            for j = 1, 4 do logits[c] = logits[c] + weight[(c - 1) * 4 + j] * math.sin(i * j + i) end
        end
        local function log_softmax(c, scale)
            local sum = 0
            for _, x in ipairs(logits) do sum = sum + math.exp(scale * x) end
            return scale * logits[c] - math.log(sum)
        end
        if target ~= ignore then
            total = total - 0.75 * log_softmax(target + 1, 1) - 0.5 * weights[target + 1] * log_softmax(target + 1, 2)
            for c = 1, 3 do total = total - 0.25 / 3 * log_softmax(c, 1) end
        end
    end
    return total / 10
end

add("the mean is over all values of the function, on both targets", function(t)
    local programs, environment = dofile("tests/lua/devices.lua").open(t)
    for target, env in next, { c = false, cuda = environment() } do
        for _, ignore in ipairs { false, 2 } do
            local text = SPEC:format("", target)
            if ignore then text = text:gsub("{ label", "{ ignore = 2, label"):gsub("{ class", "{ ignore = 2, class") end
            local p = programs.build(("own_loss_%s_%s"):format(target, ignore), text)
            local init = t.temp() .. "/init.safetensors"
            local events = programs.events(p, { "--save-init", init, env = env or nil })
            local w = programs.tensors(init)
            for _, event in ipairs(events) do
                if event.event == "update" then
                    t.near(event.loss, wanted_loss(w["a.weight"].values, w["a.bias"].values, ignore), 1e-8)
                    t.equal(event.weight, 10)
                end
            end
        end
    end
end)

add("gradients with ignored targets are the same on both targets", function(t)
    local programs, environment = dofile("tests/lua/devices.lua").open(t)
    local found = {}
    for target, env in next, { c = false, cuda = environment() } do
        local text = SPEC:format("", target):gsub("{ label", "{ ignore = 2, label"):gsub("{ class", "{ ignore = 2, class")
        found[target] = programs.dump(programs.build(("own_loss_%s_2"):format(target), text), { env = env or nil })
    end
    programs.close(found.cuda, found.c, 1e-13, { "parameters" })
end)

add("wrong calls of losses are refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function check(model, loss, text)
        local path = programs.folder() .. "/own_loss_refused.lua"
        t.write(path, ([[
data { "tensors", train = "tiny.safetensors" } batch (5) optimizer { "sgd", lr = 0.1 } train { updates = 1 }
model %s
loss { %s }
]]):format(model, loss))
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1, loss .. result.err)
        t.contains(result.err, "own_loss_refused.lua:" .. text)
    end
    local function call(text, message) check(ONE, "function(out, batch) return " .. text .. " end", "3: " .. message) end
    call("mse(out)", "mse: got 1 tensor, expected 2 tensors")
    call("mse(out, 3)", "mse: operand 2 is a number, expected a tensor")
    call("mse(out, batch.target)", "mse: the first has shape (5, 3), the targets have (5), expected the same")
    call("smooth_l1 { bet = 2 } (out, out)", "smooth_l1: unknown field 'bet'")
    call("cross_entropy(out, out)", "cross_entropy: the targets are real numbers, expected class numbers")
    call("cross_entropy(out, batch.ids)", "cross_entropy: the first has shape (5, 3), expected (5, 3, classes)")
    call("cross_entropy { class_weights = { 1, 2 } } (out, batch.target)", "cross_entropy: class_weights has 2 numbers")
    call("cross_entropy { class_weights = { 1, 2, -1 } } (out, batch.target)", "cross_entropy: class_weights: number 3")
    call("cross_entropy(out, batch.target) + cross_entropy { ignore = 1 } (out, batch.target)",
        "cross_entropy: ignore is 1, but -100 in an earlier call: expected one value for all")
    check('{ linear "a" { 2 } }', "function(out, batch) return cross_entropy(out, batch.target) end",
        "3: cross_entropy: the first has 2 classes, the data has the class 2")
    check('(function(batch) return mse(linear "a" { 3 } (batch.input), batch.input) end)', '"cross_entropy"',
        "2: mse: a loss stands in the function of the word loss")
end)

return tests
