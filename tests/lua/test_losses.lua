-- The loss of a cycle against its formula in Lua, from the initial values and the rows themselves. The
-- formulas are torch's: cross_entropy with weight, ignore_index and label_smoothing, MSELoss,
-- SmoothL1Loss, BCEWithLogitsLoss, KLDivLoss. Two micro-steps of four rows; ignored classes are not the
-- same part of both.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local ROWS, WIDTH = 8, 3

local function input(i, k) return math.floor(1000 * math.sin(i * 7 + k * 3)) / 1000 end
local function class(i) return i <= 4 and i % 2 + 1 or i % 3 end            -- of 3; no 0 in the first 4
local function number(i) return math.floor(1000 * math.cos(i * 5)) / 1000 + (i == 3 and 2 or 0) end

local function csv(target)
    local list = {}
    for i = 1, ROWS do
        local row = {}
        for k = 1, WIDTH do row[k] = ("%.3f"):format(input(i, k)) end
        list[i] = table.concat(row, ",") .. "," .. target(i)
    end
    return table.concat(list, "\n") .. "\n"
end

local function build(t, name, file, outputs, loss, more)
    local programs = t.load("tests/lua/programs.lua")(t)
    t.write(programs.folder() .. "/data/losses_class.csv", csv(class))
    t.write(programs.folder() .. "/data/losses_number.csv", csv(function(i) return ("%.3f"):format(number(i)) end))
    return programs, programs.build("loss_" .. name, ([[
data { "csv", train = "%s", target = "last", shuffle = false }
batch (4)
accumulate (2)
model { linear "fc" { %d, bias = false } }
loss %s
optimizer { "sgd", lr = 0.1 }
precision "f64"
train { updates = 1 }
%s]]):format(file, outputs, loss, more or ""))
end

-- The logged figures of the first cycle, and the outputs of the model at its initial values. target: that word of the
-- spec for a device, or nil.
local function first_cycle(t, name, file, outputs, loss, target)
    local json, folder = t.load("tests/lua/json.lua"), t.temp()
    local env
    if target then
        local _, environment = devices.open(t)
        env = environment(devices.light(t, 1))
    end
    local programs, p = build(t, name, file, outputs, loss, target)
    programs.train(p, { "--save-init", folder .. "/init.safetensors", "--log", folder .. "/log", env = env })
    local w, rows = programs.tensors(folder .. "/init.safetensors")["fc.weight"].values, {}
    for i = 1, ROWS do
        rows[i] = {}
        for c = 1, outputs do
            local sum = 0
            for k = 1, WIDTH do sum = sum + w[(c - 1) * WIDTH + k] * input(i, k) end
            rows[i][c] = sum
        end
    end
    for _, event in ipairs(json.lines(host.read(folder .. "/log"))) do
        if event.event == "update" then return rows, event end
    end
end

local function log_softmax(row)
    local sum = 0
    for _, x in ipairs(row) do sum = sum + math.exp(x) end
    local list = {}
    for c, x in ipairs(row) do list[c] = x - math.log(sum) end
    return list
end

-- Loss and weight of a row; 0 and nil: ignored.
local function cross_entropy(row, target, o)
    if target == o.ignore then return 0, nil end
    local logp, w, spread = log_softmax(row), o.weights or { 1, 1, 1 }, 0
    for c = 1, 3 do spread = spread - w[c] * logp[c] end
    local s = o.smoothing or 0
    return (1 - s) * w[target + 1] * -logp[target + 1] + s / 3 * spread, w[target + 1]
end

local CLASSES = {
    plain = { '"cross_entropy"', {} },
    ignore = { '{ "cross_entropy", ignore = 0 }', { ignore = 0 } },
    smooth = { '{ "cross_entropy", label_smoothing = 0.25 }', { smoothing = 0.25 } },
    weights = { '{ "cross_entropy", class_weights = { 0.5, 2, 1.5 }, ignore = 1 }',
        { weights = { 0.5, 2, 1.5 }, ignore = 1 } },
    all = { '{ "cross_entropy", class_weights = { 0.5, 2, 1.5 }, label_smoothing = 0.1, ignore = 2 }',
        { weights = { 0.5, 2, 1.5 }, smoothing = 0.1, ignore = 2 } },
}

local function near(t, found, expected) t.near(found, expected, 1e-13 * math.abs(expected)) end

for _, name in ipairs { "plain", "ignore", "smooth", "weights", "all" } do
    add("cross_entropy: " .. name, function(t)
        local rows, event = first_cycle(t, "ce_" .. name, "losses_class.csv", 3, CLASSES[name][1])
        local total, weight = 0, 0
        for i = 1, ROWS do
            local loss, w = cross_entropy(rows[i], class(i), CLASSES[name][2])
            total, weight = total + loss, weight + (w or 0)
        end
        near(t, event.loss, total / weight)
        near(t, event.weight, weight)
        t.equal(event.rows, ROWS)
    end)
end

add("cross_entropy: the four weights", function(t)
    local function of(weight, ignore)
        return first_cycle(t, weight .. (ignore and "_ignore" or ""), "losses_class.csv", 3,
            ('{ "cross_entropy", weight = "%s", ignore = %d }'):format(weight, ignore or -100))
    end
    for _, ignore in ipairs { 0, false } do
        local rows, micro, total, count = nil, { 0, 0 }, 0, 0
        for _, weight in ipairs { "token", "sample", "micro", "sum" } do
            local event
            rows, event = of(weight, ignore or nil)
            total, count, micro = 0, 0, { { 0, 0 }, { 0, 0 } }
            for i = 1, ROWS do
                local loss, w = cross_entropy(rows[i], class(i), { ignore = ignore })
                local step = micro[(i - 1) // 4 + 1]
                step[1], step[2] = step[1] + loss, step[2] + (w or 0)
                total, count = total + loss, count + (w or 0)
            end
            local expected = { token = total / count, sample = total / count, sum = total,
                micro = (micro[1][1] / micro[1][2] + micro[2][1] / micro[2][2]) / 2 }
            near(t, event.loss, expected[weight])
        end
    end
end)

-- The targets of the first micro-step are the classes 1 and 2; in the second one target counts.
add("a micro-step whose classes all have weight 0 does not count", function(t)
    local programs, environment = dofile("tests/lua/devices.lua").open(t)
    local function gradient(weight, how, more, target, env)
        local _, p = build(t, ("%s_%s_%s"):format(weight, how, target), "losses_class.csv", 3,
            ('{ "cross_entropy", weight = "%s", class_weights = { 1, 0, 0 } }'):format(weight),
            ('target "%s"\n'):format(target) .. more)
        return programs.dump(p, { env = env or nil })
    end
    local expected = gradient("token", "whole", "", "c")
    for how, more in next, { whole = "", chunked = 'memory { logits = "chunked", logits_rows = 2 }\n' } do
        for target, env in next, { c = false, cuda = environment() } do
            programs.close(gradient("micro", how, more, target, env), expected, 1e-14, { "parameters" })
        end
    end
end)

-- With label smoothing these two targets have losses, of the part that is spread over class 0.
add("nor do the losses that label smoothing gives it", function(t)
    for _, target in ipairs { false, 'target "cuda"' } do
        local rows, event = first_cycle(t, "micro_smooth" .. (target and "_cuda" or ""), "losses_class.csv", 3,
            '{ "cross_entropy", weight = "micro", class_weights = { 1, 0, 0 }, label_smoothing = 0.25 }', target)
        local total, weight = 0, 0
        for i = 5, ROWS do
            local loss, w = cross_entropy(rows[i], class(i), { weights = { 1, 0, 0 }, smoothing = 0.25 })
            total, weight = total + loss, weight + w
        end
        t.equal(event.weight, 1)
        near(t, event.loss, total / weight)
    end
end)

add("targets of which none counts are refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/losses_none.lua"
    local function check(target, ignore)
        t.write(programs.folder() .. "/data/losses_none.csv", csv(function() return target end))
        t.write(path, ('data { "csv", train = "losses_none.csv" } batch (4) model { linear "fc" { 3 } } '
            .. 'loss {\n"cross_entropy",\nignore = %d }\n'
            .. 'optimizer { "sgd", lr = 1 } train { updates = 1 }\n'):format(ignore))
        return programs.gagen { "check", path }
    end
    for _, target in ipairs { 0, 2 } do
        local result = check(target, target)
        t.equal(result.status, 1)
        t.contains(result.err, ("losses_none.lua:3: loss: ignore is %d, targets are from %d to %d, and none of them "
            .. "counts: expected others"):format(target, target, target))
    end
    t.equal(check(2, 1).status, 0)
    local formats = t.load("tests/lua/formats.lua")(t)
    t.write(programs.folder() .. "/data/losses_x.npy", formats.npy("<f4", "<f", { 2, 1 }, { 0, 1 }))
    t.write(programs.folder() .. "/data/losses_none.npy", formats.npy("<i4", "<i4", { 2 }, { -100, -100 }))
    t.write(path, 'data { "npy", train = { "losses_x.npy", "losses_none.npy" } } batch (2) model { linear "f" { 3 } }\n'
        .. 'loss "cross_entropy" optimizer { "sgd", lr = 1 } train { updates = 1 }\n')
    t.contains(programs.gagen { "check", path }.err, "loss: ignore is -100, targets are all -100, and none of them "
        .. "counts: expected others")
end)

local REAL = {
    mse = { '"mse"', function(x, y) return (x - y) ^ 2 end },
    smooth_l1 = { '{ "smooth_l1", beta = 0.5 }', function(x, y)
        local d = math.abs(x - y)
        return d < 0.5 and d * d / 2 / 0.5 or d - 0.25
    end },
    bce = { '"bce"', function(x, y)
        local p = 1 / (1 + math.exp(-x))
        return -(y * math.log(p) + (1 - y) * math.log(1 - p))
    end },
    kl = { '"kl"', function(x, y) return y > 0 and y * (math.log(y) - x) or 0 end },
}

for _, name in ipairs { "mse", "smooth_l1", "bce", "kl" } do
    add(name, function(t)
        local rows, event = first_cycle(t, name, "losses_number.csv", 1, REAL[name][1])
        local total = 0
        for i = 1, ROWS do total = total + REAL[name][2](rows[i][1], number(i)) end
        near(t, event.loss, total / ROWS)
    end)
end

return tests
