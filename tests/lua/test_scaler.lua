-- The loss scale in running programs: its changes, its removal from the gradient before any other use, and that an
-- overflow changes nothing else. Scales are powers of two, so that a program with a scaler has the bits of a program
-- without one.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local MICRO, A = 4, 4     -- rows of a micro-step, micro-steps of a cycle

-- Programs read CYCLES cycles of rows from the folder that a run names: a program is for many lists of events.
local CYCLES, MANY = 14, 53

local function write_rows(t, folder, events, cycles, without)
    local lines, n, cycle = {}, MICRO * A, 0
    while #lines < n * cycles do
        cycle = cycle + 1
        local event = cycle <= #events and events:sub(cycle, cycle) or "."
        for i = 0, n - 1 do
            local k = (cycle - 1) * n + i
            local row = { ("%.3f"):format(math.sin(k)), ("%.3f"):format(math.cos(3 * k)), "0.5" }
            if event == "O" and i == 2 * MICRO + 1 then row[2] = "3e38" end
            row[4] = event == "i" and "3" or tostring(k % 3)
            if not without or event == "." then lines[#lines + 1] = table.concat(row, ",") end
        end
    end
    t.write(("%s/scaler%d.csv"):format(folder, cycles), table.concat(lines, "\n") .. "\n")
    return folder
end

-- A folder with the rows of a list of events, a cycle each: "." an ordinary one, "O" one with an input in its third
-- micro-step that no scale is small enough for, "i" one without a counted target; ordinary ones follow. `without`:
-- the ordinary ones alone.
local function rows(t, events, without) return write_rows(t, t.temp(), events, CYCLES, without) end

local function spec(more, cycles)
    local text = ([[
data       { "csv", train = "scaler%d.csv", target = "last", shuffle = false }
batch      (%d)
accumulate (%d)
model      { linear "fc1" { 16 }, relu {}, linear "fc2" { 4 } }
init       { { "fc1.weight", normal = 4 } }
loss       { "cross_entropy", ignore = 3 }
optimizer  { "sgd", lr = 0.05, momentum = 0.9 }
train      { updates = %d }
]]):format(cycles or CYCLES, MICRO, A, cycles or 20)
    for line in (more or ""):gmatch("[^\n]+") do       -- a repeated word replaces the first one
        local word = line:match("^%a+")
        local changed, n = text:gsub("%f[^\n%z]" .. word .. " [^\n]*", (line:gsub("%%", "%%%%")))
        text = n > 0 and changed or text .. line .. "\n"
    end
    return text
end

-- The program of a spec, made from rows of which some have no counted target.
local function build(t, programs, name, text, how)
    local folder = programs.folder() .. "/data"
    for _, cycles in ipairs { CYCLES, MANY } do
        if not host.exists(("%s/scaler%d.csv"):format(folder, cycles)) then write_rows(t, folder, "i", cycles) end
    end
    return programs.build("scaler_" .. name, text, how)
end

-- The events of the updates in a log.
local function updates_of(t, log)
    local list = {}
    for _, event in ipairs(t.load("tests/lua/json.lua").lines(host.read(log))) do
        if event.event == "update" then list[#list + 1] = event end
    end
    return list
end

-- The updates of a run, and its dump.
local function updates(t, programs, p, o)
    local log = t.temp() .. "/log.jsonl"
    local dump = programs.dump(p, table.move({ "--log", log }, 1, 2, #o + 1, o))
    return updates_of(t, log), dump
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

-- All state that a skip must keep: moments and their count, the average, the schedule's t.
local STATE = [[
optimizer  { "adamw", lr = 0.05, ema = 0.9 }
schedule   { "cosine", warmup = 2, total = 20 }
clip       (0.3)
]]

-- Settings that act between a gradient and its update, and the cycles of an epoch; each under the names of its tests.
local CASES = {
    { "", "sgd" },
    { STATE, "adamw, clip, average" },
    { "clip       { 0.02, value = 0.01 }\n", "clip by value, then norm" },
    { 'clip       { 0.01, p = "inf" }\n', "the largest element" },
    { 'optimizer  { "fused_lamb", lr = 0.01 }\n', "lamb" },
    { STATE .. 'precision  "f64"\n', "f64" },
    { 'clip       { 0.02, per_group = true }\naccumulate { 3, tail = "flush" }\n'
        .. 'optimizer  { "sgd", lr = 0.05, momentum = 0.9, groups = { { rank = 1 } } }\n',
        "each group", "a mean over unequal tails" },
    { "gradient   (function(g, w) return where(gt(abs(g), 0.01), g, 0) + 0.001 * w end)\n"
        .. 'loss       { "cross_entropy", weight = "sum" }\noptimizer  { "sgd", lr = 1e-3, momentum = 0.5 }\n'
        .. 'accumulate { 3, tail = "flush" }\n', "a function of the spec", "a sum, and a flushed tail" },
    { 'loss       { "cross_entropy", weight = "micro" }\ntrain      { updates = 200, skip_z = 1 }\n',
        "micro-steps' means", "outliers" },
}
local SGD, ADAMW, F64 = 1, 2, 6

local function plain(t, programs, case) return build(t, programs, "plain" .. case, spec(CASES[case][1])) end
local function moving(t, programs, case) return build(t, programs, "moving" .. case, spec(CASES[case][1] .. THREE)) end

local function static(t, programs)
    return build(t, programs, "static", spec(STATE .. "scaler     { static = 65536 }\n"))
end

local function torch(t, programs)
    return build(t, programs, "torch", spec('scaler     { preset = "torch", growth_interval = 3 }\n', MANY))
end

add("overflows and growth over hysteresis and interval", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local found = updates(t, programs, moving(t, programs, SGD), { "--data", rows(t, EVENTS), "--cycles", 10 })
    t.equal(column(found, "scale"), SCALES)
    t.equal(column(found, "skipped"), SKIPPED)
    t.equal(found[10].update, 5)
end)

add("torch's preset: every overflow halves", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local data = write_rows(t, t.temp(), EVENTS, MANY)
    t.equal(column(updates(t, programs, torch(t, programs), { "--data", data, "--cycles", 10 }), "scale"),
        { 65536, 32768, 32768, 16384, 8192, 8192, 8192, 16384, 8192, 4096 })
end)

-- A run over cycles with overflows and a run over the ordinary ones alone: the options of both.
local SOME = ".O..O."
local function both(t)
    return { "--data", rows(t, SOME), "--cycles", 6 }, { "--data", rows(t, SOME, true), "--cycles", 4 }
end

add("an overflow inside a cycle skips that update and changes nothing else", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local with, without = moving(t, programs, ADAMW), plain(t, programs, ADAMW)
    local some, none = both(t)
    local found, dump = updates(t, programs, with, some)
    local wanted, expected = updates(t, programs, without, none)
    programs.identical(dump, expected)
    t.equal(column(found, "skipped"), { 0, 1, 1, 1, 2, 2 })
    for i, k in ipairs { 1, 3, 4, 6 } do t.equal(found[k].lr, wanted[i].lr) end
end)

add("an overflow does not update running statistics of the cycle", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local more = 'model      { linear "fc1" { 16 }, batchnorm "bn" { running = "cycle" }, relu {}, '
        .. 'linear "fc2" { 4 } }\n'
    local some, none = both(t)
    local with = build(t, programs, "bn_moving", spec(more .. THREE))
    local without = build(t, programs, "bn_plain", spec(more))
    local found, dump = updates(t, programs, with, some)
    programs.identical(dump, programs.dump(without, none))
    t.equal(column(found, "skipped"), { 0, 1, 1, 1, 2, 2 })
end)

add("a cycle without a target does not change the scale", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local found = updates(t, programs, moving(t, programs, SGD), { "--data", rows(t, "..iii..."), "--cycles", 8 })
    t.equal(column(found, "scale"), { 65536, 65536, 65536, 65536, 65536, 65536, 131072, 131072 })
    t.equal(column(found, "skipped"), { 0, 0, 1, 2, 3, 3, 3, 3 })
end)

-- 14 cycles of 4, or 18 of 3 and one of 2, and the beginning of a second epoch. The scale grows on its way.
local function same_bits(t, case)
    local programs = t.load("tests/lua/programs.lua")(t)
    local with, without, data = moving(t, programs, case), plain(t, programs, case), rows(t, "")
    local found, dump = updates(t, programs, with, { "--data", data })
    local wanted, expected = updates(t, programs, without, { "--data", data })
    programs.identical(dump, expected, { "parameters", "state", "gradients" })
    for _, name in ipairs { "loss", "grad_norm", "skipped", "lr" } do
        t.equal(column(found, name), column(wanted, name), name)
    end
    t.equal({ found[1].scale, found[4].scale, found[14].scale }, { 65536, 131072, 1048576 })
    t.equal(wanted[1].scale, nil)
end

for i, case in ipairs(CASES) do
    for k = 2, #case do
        add("the bits of a program without a scaler: " .. case[k], function(t) same_bits(t, i) end)
    end
end

add("a scale that grows gives the same update as a static one", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local data, p = rows(t, ""), static(t, programs)
    local found, dump = updates(t, programs, p, { "--data", data, "--cycles", 10 })
    programs.identical(programs.dump(moving(t, programs, ADAMW), { "--data", data, "--cycles", 10 }), dump)
    t.equal(column(found, "scale"), { 65536, 65536, 65536, 65536, 65536, 65536, 65536, 65536, 65536, 65536 })
end)

-- Its sixth cycle would have the scale 2^127, whose inverse is no normal number of f32: processors read it as 0.
add("a scale without a limit stays where f32 divides by it", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = build(t, programs, "no_limit", spec('scaler     { initial_scale = 2^57, growth_factor = 2^14, '
        .. 'growth_interval = 1, max_scale = "none" }\n'))
    local data = rows(t, "")
    local found, dump = updates(t, programs, p, { "--data", data, "--cycles", 6 })
    t.equal(column(found, "skipped"), { 0, 0, 0, 0, 0, 0 })
    programs.identical(dump, programs.dump(plain(t, programs, SGD), { "--data", data, "--cycles", 6 }))
    t.equal({ found[4].scale, found[5].scale, found[6].scale }, { 2.0 ^ 99, 2.0 ^ 100, 2.0 ^ 100 })
end)

add("scales other than powers of two, in f64, up to rounding", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local data = rows(t, "")
    local wanted = programs.dump(plain(t, programs, F64), { "--data", data, "--cycles", 10 })
    for i, scaler in ipairs { "{ initial_scale = 1000, growth_factor = 1.7, growth_interval = 2 }",
        "{ static = 300 }" } do
        local p = build(t, programs, "odd" .. i, spec(CASES[F64][1] .. "scaler     " .. scaler .. "\n"))
        programs.close(programs.dump(p, { "--data", data, "--cycles", 10 }), wanted, 1e-12)
    end
end)

add("the gradient carries the scale until the boundary", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local data = rows(t, "")
    local function gradients(of)     -- of the mid-cycle checkpoint, and of the dump
        local checkpoint, dump = t.temp() .. "/checkpoint", t.temp()
        programs.train(of, { "--stop-micro", 6, "--data", data, "--checkpoint", checkpoint, "--dump", dump,
            status = 75 })
        return programs.tensors(checkpoint .. "/cycle-000000001-r2/gradient-1of1.safetensors"),
            programs.tensors(dump .. "/gradients.safetensors")
    end
    local found, dumped = gradients(static(t, programs))
    local wanted, same = gradients(plain(t, programs, ADAMW))
    for name, tensor in next, wanted do
        for i, value in ipairs(tensor.values) do t.equal(found[name].values[i], 65536 * value) end
    end
    t.equal(dumped, same, "dumped without the scale")
end)

add("on_nonfinite decides about an overflow at the smallest scale", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local data = rows(t, "..OOOO..")
    local least = "scaler     { initial_scale = 4, growth_interval = 100, hysteresis = 1 }\n"
    local result = programs.train(build(t, programs, "stops", spec(least)), { "--data", data, status = 4 })
    t.contains(result.err, "cycle 5: ")
    t.contains(result.err, "elements of the gradient are not finite; the scale of the loss falls no further than 1; "
        .. 'train.on_nonfinite = "skip" would go on')
    local skips = build(t, programs, "skips", spec(least .. 'train      { updates = 8, on_nonfinite = "skip" }\n'))
    t.equal(column(updates(t, programs, skips, { "--data", data }), "scale"), { 4, 4, 4, 2, 1, 1, 1, 1 })
    -- a static scale
    local found = updates(t, programs, static(t, programs), { "--data", data, "--cycles", 8 })
    t.equal(column(found, "skipped"), { 0, 0, 1, 2, 3, 4, 4, 4 })
    t.equal(found[8].scale, 65536)
    -- without min_scale
    data = write_rows(t, t.temp(), ".." .. ("O"):rep(20), MANY)
    found = updates(t, programs, torch(t, programs), { "--data", data, "--cycles", 24 })
    t.equal({ found[3].scale, found[22].scale, found[23].scale, found[24].scale }, { 65536, 2 ^ -3, 2 ^ -4, 2 ^ -4 })
    t.equal(found[24].skipped, 20)
end)

add("50 overflows in a row end the run", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local data = write_rows(t, t.temp(), ".." .. ("O"):rep(MANY - 2), MANY)
    local result = programs.train(torch(t, programs), { "--data", data, status = 4 })
    t.contains(result.err, "cycle 52: 50 updates in a row were skipped")
end)

-- Two cycles clean, one overflow of two, one clean: inside a growth interval and a count of hysteresis.
local LONG = "..O.OO....O..."

add("resumed at every micro-step: the same bits and scales", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local data, p = rows(t, LONG), moving(t, programs, ADAMW)
    local wanted, whole = updates(t, programs, p, { "--data", data, "--cycles", #LONG })
    t.equal(column(wanted, "scale"), { 65536, 65536, 65536, 65536, 65536, 32768, 16384, 16384, 16384, 32768, 32768,
        32768, 32768, 32768 })
    local micros = { 7, 8, 10, 12, 14, 18, 21, 27, 28, 30, 42, 43 }
    for _, k in ipairs(micros) do
        local folder = t.temp() .. "/checkpoints"
        programs.train(p, { "--data", data, "--stop-micro", k, "--checkpoint", folder, status = 75 })
        local found, dump = updates(t, programs, p, { "--data", data, "--cycles", #LONG, "--checkpoint", folder,
            "--resume", "latest" })
        programs.identical(dump, whole)
        for _, event in ipairs(found) do
            for _, name in ipairs { "scale", "skipped", "lr", "grad_norm" } do
                t.equal(event[name], wanted[event.cycle][name], ("micro %d, cycle %d"):format(k, event.cycle))
            end
        end
    end
end)

add("a checkpoint has the state of the scale", function(t)
    local programs, json = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/json.lua")
    local folder = programs.train(moving(t, programs, ADAMW), { "--data", rows(t, LONG), "--cycles", 4 }).checkpoint
    t.equal(json.read(host.read(folder .. "/cycle-000000004/manifest.json")).scaler,
        { kind = "dynamic", scale = 65536, growth_step = 1, hysteresis_step = 1 })
end)

add("a checkpoint of another scaler, or of none", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local data = rows(t, "")
    local none, dynamic, fixed = plain(t, programs, ADAMW), moving(t, programs, ADAMW), static(t, programs)
    local whole = programs.dump(none, { "--data", data, "--cycles", 7 })
    local function go_on(from, micros, o)
        local folder = t.temp() .. "/checkpoints"
        programs.train(from, { "--data", data, "--stop-micro", micros, "--checkpoint", folder, status = 75 })
        return table.move({ "--data", data, "--cycles", 7, "--checkpoint", folder, "--resume", "latest" }, 1, 8, 1,
            o or {})
    end
    -- after a whole cycle each program starts its own scale; no bit changes
    for _, pair in ipairs { { none, dynamic }, { dynamic, none }, { dynamic, fixed }, { fixed, dynamic } } do
        programs.identical(programs.dump(pair[2], go_on(pair[1], 20)), whole)
    end
    local result = programs.train(dynamic, go_on(none, 20))
    t.contains(result.err, "resume: the scale of the loss is 65536 (dynamic), the checkpoint has 1 (none)\n")
    -- inside a cycle the gradient has the scale of the checkpoint
    result = programs.train(none, go_on(dynamic, 18, { status = 1 }))
    t.contains(result.err, "the checkpoint lies inside a cycle with 131072 as the scale of its loss (dynamic); this "
        .. "run has 1 (none): use the same scaler, or a checkpoint of a whole cycle")
    programs.train(fixed, go_on(none, 18, { status = 1 }))
end)

-- The updates and the dump of a run over LONG.
local function long(t, programs, p, o)
    return updates(t, programs, p, table.move({ "--data", rows(t, LONG), "--cycles", #LONG }, 1, 4, #o + 1, o))
end

add("two ranks: an overflow on one counts for both", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    -- rows 9 and 10 of a cycle's third micro-batch of four belong to different ranks here
    local text = spec(STATE .. THREE .. 'batch      (2)\nparallel   "ddp"\n')
    local two = build(t, programs, "two", text, { comm = "mpi" })
    local found, dump = long(t, programs, two, { ranks = 2, "--threads", 1 })
    local wanted, expected = long(t, programs, moving(t, programs, ADAMW), {})
    for _, name in ipairs { "scale", "skipped", "update" } do t.equal(column(found, name), column(wanted, name)) end
    programs.close(dump, expected, 1e-4)
end)

local devices = dofile "tests/lua/devices.lua"

-- The program of a spec for a device.
local function on_device(t, programs, name, more)
    return build(t, programs, "device_" .. name, spec(more) .. 'target "cuda"\n')
end

add("on a device the scale changes as on the CPU", function(t)
    local programs, environment = devices.open(t)
    -- the second grows to max_scale, and later to less; its least scale is none
    for i, scaler in ipairs { THREE,
        'scaler     { preset = "torch", growth_interval = 2, growth_factor = 4, max_scale = 131072 }\n',
        t.all and "scaler     { growth_interval = 3, hysteresis = 0, min_scale = 16384 }\n" or nil } do
        local more = i == 1 and STATE .. THREE
            or STATE .. scaler .. 'train      { updates = 14, on_nonfinite = "skip" }\n'
        local c = i == 1 and moving(t, programs, ADAMW) or build(t, programs, "host" .. i, spec(more))
        local p = on_device(t, programs, "moving" .. i, more)
        local found = long(t, programs, p, { env = environment(devices.checked(i)) })
        local wanted = long(t, programs, c, {})
        for _, name in ipairs { "scale", "skipped", "update", "lr" } do
            t.equal(column(found, name), column(wanted, name))
        end
    end
end)

add("on a device a program with a scaler has the bits of a program without one", function(t)
    local programs, environment = devices.open(t)
    local some, none = both(t)
    local function run(o, more)
        for i, word in ipairs(more or {}) do o[#o + 1] = word end
        return o
    end
    for i, more in ipairs { STATE, t.all and "clip       { 0.02, value = 0.01 }\n" or nil } do
        local with = on_device(t, programs, i == 1 and "moving1" or "clip_moving", more .. THREE)
        local without = on_device(t, programs, i == 1 and "plain" or "clip_plain", more)
        local env = environment(devices.checked(i))
        local expected = programs.dump(with, run({ env = env }, some))
        programs.identical(expected, programs.dump(without, run({ env = env }, none)))
        if i == 1 then
            local folder = t.temp() .. "/checkpoints"
            programs.train(with, run({ "--stop-micro", 14, "--checkpoint", folder, status = 75, env = env }, some))
            programs.identical(programs.dump(with, run({ "--checkpoint", folder, "--resume", "latest", env = env },
                some)), expected)
        end
    end
end)

add("on two devices an overflow on one counts for both", function(t)
    if devices.gpus(t) == 1 then t.not_run("one GPU, two are needed") end
    local programs, environment = devices.open(t)
    local wanted = long(t, programs, moving(t, programs, ADAMW), {})
    local two = on_device(t, programs, "two", STATE .. THREE .. 'batch      (2)\nparallel   { "ddp", overlap = false }\n')
    local log = t.temp() .. "/log.jsonl"
    local result = t.run { t.root .. "/tests/device/ranks", "2", two.train, "--quiet", "--checkpoint", t.temp(),
        "--log", log, "--data", rows(t, LONG), "--cycles", tostring(#LONG), env = environment(devices.checked(1)) }
    t.equal(result.status, 0, result.err)
    local found = updates_of(t, log)
    for _, name in ipairs { "scale", "skipped", "update" } do t.equal(column(found, name), column(wanted, name)) end
end)

add("a program without scaler has no code for it", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function text_of(p)
        local text = ""
        for _, file in ipairs { "update.c", "main.c", "model.h", "model.c", "save.c", "library.c",
            "library_steps.c" } do
            text = text .. host.read(p.folder .. "/" .. file)
        end
        return text, host.exists(p.folder .. "/runtime/loop/scaler.h")
    end
    local text, header = text_of(plain(t, programs, SGD))
    t.equal(header, false)
    assert(not text:find("ga_scaler", 1, true) and not text:find("GA_HAS_SCALE", 1, true), "a scaler is there")
    text, header = text_of(static(t, programs))
    t.equal(header, false)
    assert(not text:find("ga_scaler", 1, true) and not text:find("growth_step", 1, true),
        "a static scale does not move")
    text, header = text_of(moving(t, programs, SGD))
    t.equal(header, "file")
    t.contains(text, "ga_scaler_take(&SCALER, ")
end)

add("scaler refuses wrong arguments", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/scaler_refused.lua"
    write_rows(t, programs.folder() .. "/data", "i", CYCLES)
    local function refused(scaler, part, more)
        t.write(path, spec((more or "") .. "scaler     " .. scaler .. "\n"))
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
