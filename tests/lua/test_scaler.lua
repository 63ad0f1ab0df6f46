-- The loss scale in running programs: its changes, its removal from the gradient before any other use, and that an
-- overflow changes nothing else. Scales are powers of two, so that a program with a scaler has the bits of a program
-- without one.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local MICRO, A = 4, 4     -- rows of a micro-step, micro-steps of a cycle

-- A file of rows for each list of events, a cycle each: "." an ordinary one, "O" one with an input in its third
-- micro-step that no scale is small enough for, "i" one without a counted target. `without`: the ordinary ones alone.
local function write_rows(t, programs, name, events, without)
    local lines, n = {}, MICRO * A
    for cycle = 1, #events do
        local event = events:sub(cycle, cycle)
        for i = 0, n - 1 do
            local k = (cycle - 1) * n + i
            local row = { ("%.3f"):format(math.sin(k)), ("%.3f"):format(math.cos(3 * k)), "0.5" }
            if event == "O" and i == 2 * MICRO + 1 then row[2] = "3e38" end
            row[4] = event == "i" and "3" or tostring(k % 3)
            if not without or event == "." then lines[#lines + 1] = table.concat(row, ",") end
        end
    end
    t.write(("%s/data/%s.csv"):format(programs.folder(), name), table.concat(lines, "\n") .. "\n")
    return #lines // n
end

local function spec(file, cycles, more)
    local text = ([[
data       { "csv", train = "%s.csv", target = "last", shuffle = false }
batch      (%d)
accumulate (%d)
model      { linear "fc1" { 16 }, relu {}, linear "fc2" { 4 } }
init       { { "fc1.weight", normal = 4 } }
loss       { "cross_entropy", ignore = 3 }
optimizer  { "sgd", lr = 0.05, momentum = 0.9 }
train      { updates = %d }
]]):format(file, MICRO, A, cycles)
    for line in (more or ""):gmatch("[^\n]+") do       -- a repeated word replaces the first one
        local word = line:match("^%a+")
        local changed, n = text:gsub("%f[^\n%z]" .. word .. " [^\n]*", (line:gsub("%%", "%%%%")))
        text = n > 0 and changed or text .. line .. "\n"
    end
    return text
end

local function updates(programs, p, o)
    local list = {}
    for _, event in ipairs(programs.events(p, o or {})) do
        if event.event == "update" then list[#list + 1] = event end
    end
    return list
end

local function column(list, name)
    local out = {}
    for i, event in ipairs(list) do out[i] = event[name] end
    return out
end

-- The observed sequence of Colossal-AI's scaler, and one more cycle, whose log line has the scale after the last one.
local EVENTS = "O.OO...OO."
local SCALES = { 65536, 65536, 65536, 32768, 16384, 16384, 16384, 32768, 32768, 16384 }
local SKIPPED = { 1, 1, 2, 3, 3, 3, 3, 4, 5, 5 }
local THREE = "scaler     { growth_interval = 3 }\n"

add("overflows and growth over hysteresis and interval", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "scaler_events", EVENTS)
    local found = updates(programs, programs.build("scaler_events", spec("scaler_events", #EVENTS, THREE)))
    t.equal(column(found, "scale"), SCALES)
    t.equal(column(found, "skipped"), SKIPPED)
    t.equal(found[10].update, 5)
end)

add("torch's preset: every overflow halves", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "scaler_events", EVENTS)
    local p = programs.build("scaler_torch", spec("scaler_events", #EVENTS,
        'scaler     { preset = "torch", growth_interval = 3 }\n'))
    t.equal(column(updates(programs, p), "scale"),
        { 65536, 32768, 32768, 16384, 8192, 8192, 8192, 16384, 8192, 4096 })
end)

-- All state that a skip must keep: moments and their count, the average, the schedule's t.
local STATE = [[
optimizer  { "adamw", lr = 0.05, ema = 0.9 }
schedule   { "cosine", warmup = 2, total = 20 }
clip       (0.3)
]]

add("an overflow inside a cycle skips that update and changes nothing else", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "scaler_some", ".O..O.")
    write_rows(t, programs, "scaler_none", ".O..O.", true)
    local with = programs.build("scaler_some", spec("scaler_some", 6, STATE .. THREE))
    local without = programs.build("scaler_none", spec("scaler_none", 4, STATE))
    programs.identical(programs.dump(with, {}), programs.dump(without, {}))
    local found, wanted = updates(programs, with), updates(programs, without)
    t.equal(column(found, "skipped"), { 0, 1, 1, 1, 2, 2 })
    for i, k in ipairs { 1, 3, 4, 6 } do t.equal(found[k].lr, wanted[i].lr) end
end)

add("an overflow does not update running statistics of the cycle", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "scaler_some", ".O..O.")
    write_rows(t, programs, "scaler_none", ".O..O.", true)
    local more = 'model      { linear "fc1" { 16 }, batchnorm "bn" { running = "cycle" }, relu {}, linear "fc2" { 4 } }\n'
    local with = programs.build("scaler_bn_some", spec("scaler_some", 6, more .. THREE))
    local without = programs.build("scaler_bn_none", spec("scaler_none", 4, more))
    programs.identical(programs.dump(with, {}), programs.dump(without, {}))
    t.equal(column(updates(programs, with), "skipped"), { 0, 1, 1, 1, 2, 2 })
end)

add("a cycle without a target does not change the scale", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "scaler_ignored", "..iii...")
    local found = updates(programs, programs.build("scaler_ignored", spec("scaler_ignored", 8, THREE)))
    t.equal(column(found, "scale"), { 65536, 65536, 65536, 65536, 65536, 65536, 131072, 131072 })
    t.equal(column(found, "skipped"), { 0, 0, 1, 2, 3, 3, 3, 3 })
end)

-- Settings that act between a gradient and its update, and the cycles of an epoch.
local CASES = {
    { "sgd", "" },
    { "adamw, clip, average", STATE },
    { "clip by value, then norm", "clip       { 0.02, value = 0.01 }\n" },
    { "each group", "clip       { 0.02, per_group = true }\noptimizer  { \"sgd\", lr = 0.05, momentum = 0.9, groups = { { rank = 1 } } }\n" },
    { "the largest element", 'clip       { 0.01, p = "inf" }\n' },
    { "a function of the spec", "gradient   (function(g, w) return where(gt(abs(g), 0.01), g, 0) + 0.001 * w end)\n" },
    { "lamb", 'optimizer  { "fused_lamb", lr = 0.01 }\n' },
    { "a sum, and a flushed tail", 'loss       { "cross_entropy", weight = "sum" }\noptimizer  { "sgd", lr = 1e-3, momentum = 0.5 }\n'
        .. 'accumulate { 3, tail = "flush" }\n' },
    { "a mean over unequal tails", 'accumulate { 3, tail = "flush" }\nclip       (0.05)\n' },
    { "micro-steps' means", 'loss       { "cross_entropy", weight = "micro" }\n' },
    { "f64", STATE .. 'precision  "f64"\n' },
    { "outliers", "train      { updates = 200, skip_z = 1 }\n" },
}

-- 10 cycles of 4, or 13 of 3 and one of 1. The scale grows three times on its way.
for i, case in ipairs(CASES) do
    add("the bits of a program without a scaler: " .. case[1], function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        write_rows(t, programs, "scaler_clean", ("."):rep(10))
        local plain = programs.build("scaler_plain" .. i, spec("scaler_clean", 14, case[2]))
        local p = programs.build("scaler_bits" .. i, spec("scaler_clean", 14, case[2] .. THREE))
        programs.identical(programs.dump(p, {}), programs.dump(plain, {}), { "parameters", "state", "gradients" })
        local found, wanted = updates(programs, p), updates(programs, plain)
        for _, name in ipairs { "loss", "grad_norm", "skipped", "lr" } do
            t.equal(column(found, name), column(wanted, name), name)
        end
        t.equal({ found[1].scale, found[4].scale, found[14].scale }, { 65536, 131072, 1048576 })
        t.equal(wanted[1].scale, nil)
    end)
end

add("a scale that grows gives the same update as a static one", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "scaler_clean", ("."):rep(10))
    local more = 'clip       (0.05)\n'
    local moving = programs.build("scaler_moving", spec("scaler_clean", 10, more .. THREE))
    local static = programs.build("scaler_static", spec("scaler_clean", 10, more .. "scaler     { static = 65536 }\n"))
    programs.identical(programs.dump(moving, {}), programs.dump(static, {}))
    t.equal(column(updates(programs, static), "scale"), { 65536, 65536, 65536, 65536, 65536, 65536, 65536, 65536, 65536,
        65536 })
end)

add("scales other than powers of two, in f64, up to rounding", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "scaler_clean", ("."):rep(10))
    local more = STATE .. 'precision  "f64"\n'
    local plain = programs.build("scaler_plain_f64", spec("scaler_clean", 10, more))
    for i, scaler in ipairs { "{ initial_scale = 1000, growth_factor = 1.7, growth_interval = 2 }", "{ static = 300 }" } do
        local p = programs.build("scaler_odd" .. i, spec("scaler_clean", 10, more .. "scaler     " .. scaler .. "\n"))
        programs.close(programs.dump(p, {}), programs.dump(plain, {}), 1e-12)
    end
end)

add("the gradient carries the scale until the boundary", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "scaler_clean", ("."):rep(10))
    local plain = programs.build("scaler_plain1", spec("scaler_clean", 14, ""))
    local p = programs.build("scaler_static_2", spec("scaler_clean", 14, "scaler     { static = 256 }\n"))
    local function gradients(of)     -- of the mid-cycle checkpoint, and of the dump
        local folder = programs.train(of, { "--stop-micro", 6, status = 75 }).checkpoint
        local saved = folder .. "/cycle-000000001-r2/gradient-1of1.safetensors"
        local dump = programs.dump(of, { "--stop-micro", 6, status = 75 }) .. "/gradients.safetensors"
        return programs.tensors(saved), programs.tensors(dump)
    end
    local found, dumped = gradients(p)
    local wanted, same = gradients(plain)
    for name, tensor in next, wanted do
        for i, value in ipairs(tensor.values) do t.equal(found[name].values[i], 256 * value) end
    end
    t.equal(dumped, same, "dumped without the scale")
end)

add("on_nonfinite decides about an overflow at the smallest scale", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "scaler_bad", "..OOOO..")
    local least = "scaler     { initial_scale = 4, growth_interval = 100, hysteresis = 1 }\n"
    local stops = programs.build("scaler_stops", spec("scaler_bad", 8, least))
    local result = programs.train(stops, { status = 4 })
    t.contains(result.err, "cycle 5: ")
    t.contains(result.err, "elements of the gradient are not finite; the scale of the loss falls no further than 1; "
        .. 'train.on_nonfinite = "skip" would go on')
    local skips = programs.build("scaler_skips", spec("scaler_bad", 8,
        least .. 'train      { updates = 8, on_nonfinite = "skip" }\n'))
    t.equal(column(updates(programs, skips), "scale"), { 4, 4, 4, 2, 1, 1, 1, 1 })
    -- without min_scale, and with a static scale
    for name, scaler in next, { torch = '{ preset = "torch", initial_scale = 1 }', static = "{ static = 8 }" } do
        local found = updates(programs, programs.build("scaler_bad_" .. name, spec("scaler_bad", 8,
            "scaler     " .. scaler .. "\n")))
        t.equal(column(found, "skipped"), { 0, 0, 1, 2, 3, 4, 4, 4 })
        t.equal(found[8].scale, name == "torch" and 1 / 16 or 8)
    end
end)

add("50 overflows in a row end the run", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "scaler_lost", ".." .. ("O"):rep(51))
    local result = programs.train(programs.build("scaler_lost", spec("scaler_lost", 53,
        'scaler     { preset = "torch" }\n')), { status = 4 })
    t.contains(result.err, "cycle 52: 50 updates in a row were skipped")
end)

-- Two cycles clean, one overflow of two, one clean: inside a growth interval and a count of hysteresis.
local LONG = "..O.OO....O..."

add("resumed at every micro-step: the same bits and scales", function(t)
    local programs, json = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/json.lua")
    write_rows(t, programs, "scaler_long", LONG)
    local p = programs.build("scaler_long", spec("scaler_long", #LONG, STATE .. THREE))
    local whole, wanted = programs.dump(p, {}), updates(programs, p)
    t.equal(column(wanted, "scale"), { 65536, 65536, 65536, 65536, 65536, 32768, 16384, 16384, 16384, 32768, 32768,
        32768, 32768, 32768 })
    local micros = { 7, 8, 10, 12, 14, 18, 21, 27, 28, 30, 42, 43 }
    for _, k in ipairs(micros) do
        local folder, log = t.temp() .. "/checkpoints", t.temp() .. "/log"
        programs.train(p, { "--stop-micro", k, "--checkpoint", folder, status = 75 })
        programs.identical(programs.dump(p, { "--checkpoint", folder, "--resume", "latest", "--log", log }), whole)
        for _, event in ipairs(json.lines(host.read(log))) do
            if event.event == "update" then
                for _, name in ipairs { "scale", "skipped", "lr", "grad_norm" } do
                    t.equal(event[name], wanted[event.cycle][name], ("micro %d, cycle %d"):format(k, event.cycle))
                end
            end
        end
    end
end)

add("a checkpoint has the state of the scale", function(t)
    local programs, json = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/json.lua")
    write_rows(t, programs, "scaler_long", LONG)
    local p = programs.build("scaler_long", spec("scaler_long", #LONG, STATE .. THREE))
    local folder = programs.train(p, { "--cycles", 4 }).checkpoint
    t.equal(json.read(host.read(folder .. "/cycle-000000004/manifest.json")).scaler,
        { kind = "dynamic", scale = 65536, growth_step = 1, hysteresis_step = 1 })
end)

add("a checkpoint of another scaler, or of none", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "scaler_clean", ("."):rep(10))
    local plain = programs.build("scaler_plain1", spec("scaler_clean", 14, ""))
    local moving = programs.build("scaler_bits1", spec("scaler_clean", 14, THREE))
    local static = programs.build("scaler_static_2", spec("scaler_clean", 14, "scaler     { static = 256 }\n"))
    local whole = programs.dump(plain, {})
    local function go_on(from, micros, to, o)
        local folder = t.temp() .. "/checkpoints"
        programs.train(from, { "--stop-micro", micros, "--checkpoint", folder, status = 75 })
        return table.move({ "--checkpoint", folder, "--resume", "latest" }, 1, 4, 1, o or {}), to
    end
    -- after a whole cycle each program starts its own scale; no bit changes
    for _, pair in ipairs { { plain, moving }, { moving, plain }, { moving, static }, { static, moving } } do
        programs.identical(programs.dump(pair[2], go_on(pair[1], 20, pair[2])), whole)
    end
    local result = programs.train(moving, go_on(plain, 20, moving))
    t.contains(result.err, "resume: the scale of the loss is 65536 (dynamic), the checkpoint has 1 (none)\n")
    -- inside a cycle the gradient has the scale of the checkpoint
    result = programs.train(plain, go_on(moving, 18, plain, { status = 1 }))
    t.contains(result.err, "the checkpoint lies inside a cycle with 131072 as the scale of its loss (dynamic); this run "
        .. "has 1 (none): use the same scaler, or a checkpoint of a whole cycle")
    programs.train(static, go_on(plain, 18, static, { status = 1 }))
end)

add("two ranks: an overflow on one counts for both", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs, "scaler_long", LONG)
    local more = STATE .. THREE .. 'parallel   "ddp"\n'
    local one = programs.build("scaler_long", spec("scaler_long", #LONG, STATE .. THREE))
    -- rows 9 and 10 of a cycle's third micro-batch of four belong to different ranks here
    local two = programs.build("scaler_two", spec("scaler_long", #LONG, more):gsub("batch      %(4%)", "batch (2)"),
        { comm = "mpi" })
    local found = updates(programs, two, { ranks = 2, "--threads", 1 })
    local wanted = updates(programs, one)
    for _, name in ipairs { "scale", "skipped", "update" } do t.equal(column(found, name), column(wanted, name)) end
    programs.close(programs.dump(two, { ranks = 2, "--threads", 1 }), programs.dump(one, {}), 1e-4)
end)

local devices = dofile "tests/lua/devices.lua"

add("on a device the scale changes as on the CPU", function(t)
    local programs, environment = devices.open(t)
    write_rows(t, programs, "scaler_long", LONG)
    for i, scaler in ipairs { THREE, 'scaler     { preset = "torch", growth_interval = 2, max_scale = 65536 }\n',
        "scaler     { growth_interval = 3, hysteresis = 0, min_scale = 16384 }\n",
        'scaler     { growth_interval = 2, preset = "torch" }\n' } do
        local text = spec("scaler_long", #LONG, STATE .. scaler .. 'train      { updates = 14, on_nonfinite = "skip" }\n')
        local c = programs.build("scaler_host" .. i, text)
        local p = programs.build("scaler_device" .. i, text .. 'target "cuda"\n')
        local found, wanted = updates(programs, p, { env = environment(devices.checked(i)) }), updates(programs, c)
        for _, name in ipairs { "scale", "skipped", "update", "lr" } do t.equal(column(found, name), column(wanted, name)) end
    end
end)

add("on a device a program with a scaler has the bits of a program without one", function(t)
    local programs, environment = devices.open(t)
    write_rows(t, programs, "scaler_some", ".O..O.")
    write_rows(t, programs, "scaler_none", ".O..O.", true)
    for i, more in ipairs { STATE, "clip       { 0.02, value = 0.01 }\n" } do
        local with = programs.build("scaler_device_some" .. i, spec("scaler_some", 6, more .. THREE) .. 'target "cuda"\n')
        local without = programs.build("scaler_device_none" .. i, spec("scaler_none", 4, more) .. 'target "cuda"\n')
        local env = environment(devices.checked(i))
        programs.identical(programs.dump(with, { env = env }), programs.dump(without, { env = env }))
    end
    local folder, env = t.temp() .. "/checkpoints", environment()
    local p = programs.build("scaler_device_some1", spec("scaler_some", 6, STATE .. THREE) .. 'target "cuda"\n')
    programs.train(p, { "--stop-micro", 14, "--checkpoint", folder, status = 75, env = env })
    programs.identical(programs.dump(p, { "--checkpoint", folder, "--resume", "latest", env = env }),
        programs.dump(p, { env = env }))
end)

add("on two devices an overflow on one counts for both", function(t)
    if devices.gpus(t) == 1 then t.not_run("one GPU, two are needed") end
    local programs, environment = devices.open(t)
    write_rows(t, programs, "scaler_long", LONG)
    local more = STATE .. THREE
    local wanted = updates(programs, programs.build("scaler_long", spec("scaler_long", #LONG, more)))
    local two = programs.build("scaler_two_devices", (spec("scaler_long", #LONG, more .. 'parallel   "ddp"\n')
        :gsub("batch      %(4%)", "batch (2)")) .. 'target "cuda"\n')
    local log = t.temp() .. "/log.jsonl"
    local result = t.run { t.root .. "/tests/device/ranks", "2", two.train, "--quiet", "--checkpoint", t.temp(),
        "--log", log, env = environment(devices.checked(1)) }
    t.equal(result.status, 0, result.err)
    local found = {}
    for _, event in ipairs(t.load("tests/lua/json.lua").lines(host.read(log))) do
        if event.event == "update" then found[#found + 1] = event end
    end
    for _, name in ipairs { "scale", "skipped", "update" } do t.equal(column(found, name), column(wanted, name)) end
end)

add("a program without scaler has no code for it", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function text_of(name, more)
        local p = programs.build(name, spec("scaler_clean", 14, more))
        local text = ""
        for _, file in ipairs { "update.c", "main.c", "model.h", "model.c", "save.c", "library.c", "library_steps.c" } do
            text = text .. host.read(p.folder .. "/" .. file)
        end
        return text, host.exists(p.folder .. "/runtime/loop/scaler.h")
    end
    write_rows(t, programs, "scaler_clean", ("."):rep(10))
    local text, header = text_of("scaler_plain1", "")
    t.equal(header, false)
    assert(not text:find("ga_scaler", 1, true) and not text:find("GA_HAS_SCALE", 1, true), "a scaler is there")
    text, header = text_of("scaler_static_2", "scaler     { static = 256 }\n")
    t.equal(header, false)
    assert(not text:find("ga_scaler", 1, true) and not text:find("growth_step", 1, true), "a static scale does not move")
    text, header = text_of("scaler_bits1", THREE)
    t.equal(header, "file")
    t.contains(text, "ga_scaler_take(&SCALER, ")
end)

add("scaler refuses wrong arguments", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/scaler_refused.lua"
    write_rows(t, programs, "scaler_clean", ("."):rep(10))
    local function refused(scaler, part, more)
        t.write(path, spec("scaler_clean", 14, (more or "") .. "scaler     " .. scaler .. "\n"))
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1, scaler)
        t.contains(result.err, part)
    end
    refused("{ growth_factor = 1 }", "scaler: growth_factor is 1, expected a number > 1")
    refused("{ backoff_factor = 1 }", "scaler: backoff_factor is 1, expected a number > 0 and < 1")
    refused("{ growth_interval = 0 }", "scaler: growth_interval is 0")
    refused("{ hysteresis = -1 }", "scaler: hysteresis is -1")
    refused("{ initial_scale = 0 }", "scaler: initial_scale is 0")
    refused("{ initial_scale = 1/0 }", "scaler: initial_scale is not finite")
    refused("{ min_scale = 2^17 }", "scaler: initial_scale is 65536, expected 131072..4.29497e+09: from min_scale to "
        .. "max_scale")
    refused("{ min_scale = 8, max_scale = 4, initial_scale = 8 }", "min_scale is 8 and max_scale 4")
    refused("{ static = 8, growth_factor = 2 }", "scaler: growth_factor beside static")
    refused('{ static = 8, preset = "torch" }', "scaler: preset beside static")
    refused('{ preset = "apex" }', "scaler: preset is 'apex', expected one of 'torch'")
    refused("{}", 'scaler: precision "bf16" has the exponents of f32', 'precision  "bf16"\n')
    refused("{ floor = 1 }", "scaler: unknown field 'floor'")
    refused("{}", 'on_nonfinite is "ignore", but with a loss scale an overflow is skipped',
        'train      { updates = 8, on_nonfinite = "ignore" }\n')
end)

return tests
