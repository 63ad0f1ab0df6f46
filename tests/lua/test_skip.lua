-- A skipped update changes nothing: a run whose second cycle is skipped ends with the same bits as one over the
-- rows without that cycle, whatever the optimizer keeps and however the rate is counted.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local ROWS = 16      -- of a cycle

-- Four cycles of rows, or the three of them that count. In the other one, no target counts (class 3 is
-- ignored), or one input is so large that the loss overflows.
local function write_rows(t, programs, how)
    for _, skipping in ipairs { true, false } do
        local lines = {}
        for i = 0, 4 * ROWS - 1 do
            local odd = i // ROWS == 1
            local row = { ("%.3f"):format(math.sin(i)), ("%.3f"):format(math.cos(3 * i)), "0.5" }
            if odd and how == "overflow" and i % ROWS == 5 then row[2] = "3e38" end
            row[4] = odd and how == "ignored" and "3" or tostring(i % 3)
            if skipping or not odd then lines[#lines + 1] = table.concat(row, ",") end
        end
        t.write(("%s/data/skip_%s_%s.csv"):format(programs.folder(), how, skipping), table.concat(lines, "\n") .. "\n")
    end
end

local function spec(how, skipping, on_skip)
    return ([[
data       { "csv", train = "skip_%s_%s.csv", target = "last", shuffle = false }
batch      (8)
accumulate (2)
model      { linear "fc1" { 16 }, relu {}, linear "fc2" { 4 } }
init       { { "fc1.weight", normal = 4 } }
loss       { "cross_entropy", ignore = 3 }
optimizer  { "adamw", lr = 0.05 }
schedule   { "cosine", warmup = 2, total = 20, on_skip = "%s" }
clip       (0.3)
train      { updates = %d, on_nonfinite = "skip" }
]]):format(how, skipping, on_skip, skipping and 4 or 3)
end

local function updates(t, programs, p)
    local list = {}
    for _, event in ipairs(programs.events(p, {})) do
        if event.event == "update" then list[#list + 1] = event end
    end
    return list
end

for _, how in ipairs { "ignored", "overflow" } do
    add("parameters, moments, their count and the rate are kept: " .. how, function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        write_rows(t, programs, how)
        local with = programs.build("skip_" .. how, spec(how, true, "hold"))
        local without = programs.build("skip_none_" .. how, spec(how, false, "hold"))
        programs.identical(programs.dump(with, {}), programs.dump(without, {}))
        local found, wanted = updates(t, programs, with), updates(t, programs, without)
        t.equal({ found[2].skipped, found[4].skipped, found[4].update }, { 1, 1, 3 })
        for i, k in ipairs { 1, 3, 4 } do t.equal(found[k].lr, wanted[i].lr) end
        t.equal(found[2].lr, found[3].lr, "the rate that was not used")
    end)
end

add("stopped inside a skipped cycle: the same bits", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "overflow")
    local p, folder = programs.build("skip_overflow", spec("overflow", true, "hold")), t.temp() .. "/checkpoints"
    programs.train(p, { "--stop-micro", 3, "--checkpoint", folder, status = 75 })
    local found = programs.tensors(folder .. "/cycle-000000001-r1/gradient-1of1.safetensors")["fc1.weight"].values
    local finite = true
    for _, x in ipairs(found) do finite = finite and x - x == 0 end
    t.equal(finite, false, "the overflow is in the micro-step that was done")
    programs.identical(programs.dump(p, { "--checkpoint", folder, "--resume", "latest" }), programs.dump(p, {}))
    local stops = programs.build("skip_not", (spec("overflow", true, "hold"):gsub('"skip"', '"stop"')))
    local result = programs.train(stops, { "--stop-micro", 3, status = 4 })
    t.contains(result.err, "not finite: not saved")
end)

add("on_skip = \"advance\" counts cycles", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "ignored")
    local hold = updates(t, programs, programs.build("skip_ignored", spec("ignored", true, "hold")))
    local advance = updates(t, programs, programs.build("skip_advance", spec("ignored", true, "advance")))
    t.equal(advance[3].lr, hold[4].lr)
end)

add("the rate changes once per update, not per micro-step", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "ignored")
    local found = updates(t, programs, programs.build("skip_none_ignored", spec("ignored", false, "hold")))
    for i, rate in ipairs { 0.05 / 2, 0.05, 0.05 } do t.near(found[i].lr, rate, 1e-12) end
end)

-- Cycles of one row with a rate so small that the norms are those of the first parameters.
local OUTLIERS = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (1)
model      { linear "fc1" { 16 }, relu {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 1e-30 }
precision  "f64"
train      { updates = 300, skip_z = 1.25 }
]]

add("outliers against their definition, also after a resume", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("skip_outliers", OUTLIERS)
    local list, n, mean, variance, skipped = updates(t, programs, p), 0, 0, 0, 0
    for _, event in ipairs(list) do
        local d, a = event.grad_norm - mean, math.max(1 / (n + 1), 2 / 129)
        if n >= 128 and d > 1.25 * math.sqrt(variance) then skipped = skipped + 1 end
        t.equal(event.skipped, skipped, "cycle " .. event.cycle)
        n, mean, variance = n + 1, mean + a * d, (1 - a) * (variance + a * d * d)
    end
    assert(skipped >= 10, skipped)
    local folder, log = t.temp() .. "/checkpoints", t.temp() .. "/log"
    programs.train(p, { "--cycles", 170, "--checkpoint", folder })
    programs.train(p, { "--checkpoint", folder, "--resume", "latest", "--log", log })
    local events = t.load("tests/lua/json.lua").lines(host.read(log))
    for _, event in ipairs(events) do
        if event.event == "update" then t.equal(event.skipped, list[event.cycle].skipped) end
    end
end)

return tests
