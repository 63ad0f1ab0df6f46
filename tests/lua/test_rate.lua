-- gagen fit SPEC --lr: the suggestion on curves whose answer is known, and a test of a small program from end to end.
local rate_curve = require "command.rate_curve"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- Losses of n rates from 1e-5 to 10, each f(log10 of the rate, its number), and the log10 of place i.
local function place(i, n) return -5 + 6 * (i - 1) / (n - 1) end
local function losses(f, n)
    local list = {}
    for i = 1, n or 200 do list[i] = f(place(i, n or 200), i) end
    return list
end

-- 2 at low rates, 0.5 at high ones, steepest where x is `middle`.
local function fall(x, middle) return 2 - 1.5 / (1 + math.exp(-4 * (x - middle))) end

-- Numbers in -1..1 without a pattern, the same each time.
local function noise(i) return math.sin(i * i * 12.9898 + 78.233 * i) end

local function picked(found) return found.pick and place(found.pick, 200) end

add("the steepest place of a smooth fall is found", function(t)
    for _, middle in ipairs { -3, -2, -1.25 } do
        local found = rate_curve.read(losses(function(x) return fall(x, middle) end))
        t.near(picked(found), middle, 0.03)
        t.equal({ found.least, found.ends }, { 200, nil })
    end
end)

add("a quadratic valley under a rising rate: below the rate at which steps grow", function(t)
    local w, stable = 1, 2 / 8                          -- loss 4 w^2 + 0.01: steps shrink below lr = 2 / 8
    local found = rate_curve.read(losses(function(x)
        local loss = 4 * w * w + 0.01
        w = w - 10.0 ^ x * 8 * w
        return loss
    end))
    assert(picked(found) > math.log(stable / 1000, 10) and picked(found) < math.log(stable, 10), picked(found))
    t.equal(found.ends, "exceeds 4 times the least")
end)

add("the curve ends where the loss is not finite or grows", function(t)
    local function valley(x) return fall(x, -3) + (x > -1 and (x + 1) ^ 2 * 20 or 0) end
    local grown = rate_curve.read(losses(valley))
    t.near(picked(grown), -3, 0.03)
    t.near(place(grown.least, 200), -1, 0.2)
    t.equal({ grown.ends, #grown.curve < 160 }, { "exceeds 4 times the least", true })
    for _, value in ipairs { 0 / 0, math.huge, "nan" } do
        local broken = rate_curve.read(losses(function(x, i) return i > 150 and value or fall(x, -3) end))
        t.equal({ #broken.curve, broken.ends }, { 150, "is not finite" })
        t.near(picked(broken), -3, 0.03)
    end
end)

add("a negative loss may fall and grow too", function(t)
    local found = rate_curve.read(losses(function(x) return fall(x, -3) - 4 + (x > -1 and (x + 1) ^ 3 * 20 or 0) end))
    t.near(picked(found), -3, 0.03)
    t.equal(found.ends, "exceeds 4 times the least")
end)

add("noise moves the suggestion little", function(t)
    for size, tolerance in pairs { [0.05] = 0.25, [0.2] = 0.5 } do
        local found = rate_curve.read(losses(function(x, i) return fall(x, -2.5) + size * noise(i) end))
        t.near(picked(found), -2.5, tolerance)
    end
end)

add("no fall, no suggestion: flat, flat with noise, growing, not finite at once", function(t)
    local function none(f)
        local found = rate_curve.read(losses(f))
        t.equal(found.pick, nil)
        return found
    end
    none(function() return 2.3 end)
    none(function() return 0 end)
    none(function(_, i) return 2.3 + 0.1 * noise(i) end)
    none(function(_, i) return 2.3 - 1e-5 * i end)
    none(function(x) return 8 - fall(x, -3) end)
    local found = none(function() return 0 / 0 end)
    t.equal({ #found.curve, found.least, found.ends }, { 0, nil, "is not finite" })
    t.equal(#none(function(_, i) return i > 1 and 0 / 0 or 1 end).curve, 1)
end)

add("the picture fits its columns and rows and shows the suggestion", function(t)
    local found, rates = rate_curve.read(losses(function(x) return fall(x, -2) end)), {}
    for i = 1, 200 do rates[i] = 10.0 ^ place(i, 200) end
    for _, columns in ipairs { 40, 80, 100 } do
        local lines, stars = rate_curve.picture(found, rates, columns, 18), 0
        t.equal(#lines, 18)
        for _, line in ipairs(lines) do
            assert(#line <= columns, line)
            stars = stars + select(2, line:gsub("%*", ""))
        end
        t.equal(select(2, table.concat(lines):gsub("o", "")), 1)
        assert(stars >= columns - 12, stars)
        t.contains(lines[18], "1e-3")
        t.equal(lines[1]:match "^ +([%d.]+) |%*+$", "2")
    end
    local flat = rate_curve.read { 1, 1, 1 }
    t.equal(#rate_curve.picture(flat, { 1, 2, 3 }, 40, 18), 18)
    t.equal(#rate_curve.picture(rate_curve.read { 1 }, { 1 }, 40, 18), 18)
end)

local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last", shuffle = true }
batch      (4)
accumulate (2)
model      { linear "fc" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.5, momentum = 0.5 }
schedule   { "cosine", warmup = 10, auto_lr = "linear", base_rows = 4 }
log        { every = 50 }
train      { updates = 30, seed = 1 }
]]

local function fit(t, text, ...)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/rate.lua"
    t.write(path, text)
    return programs.gagen { "fit", path, env = { "CFLAGS=-O0" }, ... }, path
end

add("a test of a program: the rates, a run of its own, the line of the spec", function(t)
    local json, folder = t.load("tests/lua/json.lua"), t.temp() .. "/fit"
    local result, path = fit(t, SPEC, "--lr", "-o", folder)
    t.equal(result.status, 0, result.err)
    t.contains(result.err, "fit: 200 updates, rates from 5e-4 to 5e2\n")
    local rates, seen = {}, {}
    for _, event in ipairs(json.lines(host.read(folder .. "/runs/001/log.jsonl"))) do
        if event.event == "update" then rates[#rates + 1], seen[#seen + 1] = event.lr, event.loss end
    end
    t.equal(#rates, 200)
    for i, rate in ipairs(rates) do t.near(rate, 5e-4 * 1e6 ^ ((i - 1) / 199), 1e-6 * rate) end
    local lr, line = result.out:match "\nleast, [^\n]+\nlr = ([%d.e-]+): around this rate [%l ]+\n(.-)\n$"
    t.equal(line, ('%s:6: optimizer  { "sgd", lr = %s, momentum = 0.5 }'):format(path, lr))
    local half = rates[rate_curve.read(seen).pick] / 2      -- auto_lr doubles the rate of an update of 8 rows
    t.near(tonumber(lr), half, 0.05 * half)
    t.equal(fit(t, SPEC, "--lr", "-o", folder, "--", "--quiet").status, 1)      -- given twice
    t.equal(host.list(folder .. "/runs"), { "001", "latest" })
end)

add("no suggestion is exit 1 with the reason", function(t)
    local result, path = fit(t, SPEC, "--lr", "-o", t.temp() .. "/fit", "--set", "optimizer.lr=1e-12")
    t.equal(result.status, 1)
    t.contains(result.err, path .. ":6: fit: no rate is suggested: the loss does not fall by more than its noise (")
    t.contains(result.out, "loss of updates over their rate, smoothed\n")
end)

add("fit without --lr, a rate of 0 and a schedule that is a function are refused", function(t)
    local result = fit(t, SPEC)
    t.equal({ result.status, result.err }, { 1, "gagen: fit: --lr is missing, expected gagen fit SPEC --lr\n" })
    t.contains(fit(t, SPEC:gsub("0%.5, m", "0, m"), "--lr").err, "fit: the optimizer's lr is 0, expected more")
    t.contains(fit(t, SPEC:gsub("schedule[^\n]*", "schedule (function(t, base) return base end)"), "--lr").err,
        "schedule: a function in the spec, which no value can replace")
end)

return tests
