-- The best evaluation, patience, and the checkpoints that nobody asked for. The truth is computed here from the figures
-- of the log.
local devices = dofile "tests/lua/devices.lua"
local json = dofile "tests/lua/json.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last", split = { eval = 20, seed = 1 } }
batch      (5)
model      { linear "fc1" { 16 }, tanh {}, dropout(0.2), linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 0.1 }
train      { updates = 120, patience = 6, min_delta = 0.01 }
eval       { every = 4, metrics = { "loss", "accuracy" } }
checkpoint { best = "loss", keep = 2 }
]]

-- The evaluations of a run, and the cycles of its checkpoints.
local function read(t, log)
    local evals, saved, ended = {}, {}, nil
    for _, event in ipairs(json.lines(host.read(log))) do
        if event.event == "eval" then evals[#evals + 1] = event end
        if event.event == "checkpoint" then saved[#saved + 1] = event.cycle end
        if event.event == "end" then ended = event end
    end
    return evals, saved, ended
end

local function cycles_in(folder)
    local list = {}
    for _, name in ipairs(host.list(folder)) do
        list[#list + 1] = math.tointeger(tonumber(name:match "^cycle%-(%d+)$"))
    end
    table.sort(list)
    return list
end

-- The place of the best of the first n evaluations, and of the one where patience ends. sign: 1 where less is better.
local function truth(evals, metric, sign, patience, min_delta)
    local best, mark, bad = nil, nil, 0
    for i, event in ipairs(evals) do
        local value = sign * event[metric]
        if not best or value < sign * evals[best][metric] then best = i end
        if not mark or value < mark - (min_delta or 0) then mark, bad = value, 0 else bad = bad + 1 end
        if patience and bad == patience then return best, i end
    end
    return best, nil
end

local function trained(t, programs, p, o)
    local checkpoint = t.temp()
    local log = checkpoint .. ".log"
    local result = programs.train(p, table.move({ "--checkpoint", checkpoint, "--log", log }, 1, 4, #o + 1, o))
    return checkpoint, log, result
end

add("patience ends training, and the best checkpoint stays", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("best", SPEC)
    local folder, log, result = trained(t, programs, p, {})
    local evals, _, ended = read(t, log)
    local best, stop = truth(evals, "loss", 1, 6, 0.01)
    assert(stop and stop < 30, "patience ends before the updates do")
    t.equal(#evals, stop)
    t.equal(ended.reason, "patience")
    t.equal(ended.cycle, 4 * stop)
    local kept = cycles_in(folder)
    t.equal(kept[1], 4 * best)
    t.equal(kept[#kept], 4 * stop)
    t.equal(#kept, 3)
    t.contains(result.err, ("cycle %d: training ends, as 6 evaluations in a row were no better (train.patience)"):format(
        4 * stop))
    for i, event in ipairs(evals) do
        t.equal(event.best or false, i == truth({ table.unpack(evals, 1, i) }, "loss", 1))
    end
    local loud = t.run { p.train, "--checkpoint", t.temp(), env = { "GAGEN_DATA=" .. p.folder .. "/data" } }
    t.equal(loud.status, 0)
    t.match(loud.err, ("best: best loss [%%d.]+ at cycle %d, kept: .*/cycle%%-%09d\n"):format(4 * best, 4 * best))
    t.match(loud.out, "accuracy [%d.]+ rows 20, best so far\n")
    local again = programs.train(p, { "--resume", "latest", "--checkpoint", folder })
    t.match(again.err, "nothing left to train: 6 evaluations in a row were no better")
    local function evaluated(...)
        local file = t.temp() .. "/log"
        local told = programs.train(p, { "--eval", "--log", file, ... }).err
        local event = read(t, file)[1]
        return { event.cycle, event.loss, event.accuracy }, told
    end
    local function logged(i) return { evals[i].cycle, evals[i].loss, evals[i].accuracy } end
    t.equal(evaluated("--checkpoint", folder), logged(best))
    t.equal(evaluated("--checkpoint", folder, "--resume", "latest"), logged(#evals))
    local start = t.temp() .. "/start.safetensors"
    local initial, told = evaluated()
    t.match(told, "^%-%-eval: .+: these are the initial values\n")
    t.equal(evaluated("--checkpoint", folder, "--save-init", start), initial)
    t.equal(evaluated("--checkpoint", folder, "--init", start), initial)
end)

-- Stops, goes on, and compares figures, bits and manifests with the run that was not stopped.
local function resumed(t, p, programs, how)
    local function options(...) return { ranks = how.ranks, before = how.before, env = how.env, ... } end
    local straight, log = trained(t, programs, p, options())
    local evals, _, ended = read(t, log)
    for _, stop in ipairs { { "--cycles", 18 }, { "--cycles", 20 }, { "--stop-micro", 51, status = 75 } } do
        local o = options(table.unpack(stop))
        o.status = stop.status
        local folder = trained(t, programs, p, o)
        local second = folder .. ".second"
        programs.train(p, options("--resume", "latest", "--checkpoint", folder, "--log", second))
        local found, _, found_end = read(t, second)
        t.equal({ found_end.reason, found_end.cycle }, { ended.reason, ended.cycle })
        for i = 1, #found do
            local event, expected = found[#found - i + 1], evals[#evals - i + 1]
            t.equal({ event.cycle, event.loss, event.accuracy, event.best }, { expected.cycle, expected.loss,
                expected.accuracy, expected.best })
        end
        local name = ("/cycle-%09d/"):format(ended.cycle)
        for _, file in ipairs { "model.safetensors", "optimizer.safetensors" } do
            t.equal(host.sha256(host.read(folder .. name .. file)), host.sha256(host.read(straight .. name .. file)))
        end
        local function best(of) return host.read(of .. name .. "manifest.json"):match '"best":(%b{})' end
        t.equal(best(folder), assert(best(straight)))
        t.equal(host.exists(folder .. ("/cycle-%09d"):format(json.read(best(folder)).cycle)), "folder")
    end
end

for _, target in ipairs { "c", "cuda" } do
    add("resumed runs keep the best and their patience: " .. target, function(t)
        local programs, environment = devices.open(t)
        local p = programs.build("best_" .. target, SPEC .. ('target "%s"\naccumulate (2)\n'):format(target))
        resumed(t, p, programs, { env = target == "cuda" and environment() or nil })
    end)
    add("resumed runs keep the best and their patience, two ranks: " .. target, function(t)
        local programs, environment = devices.open(t)
        if target == "cuda" then t.long() end
        if target == "cuda" and devices.gpus(t) == 1 then t.not_run("one GPU, two are needed") end
        local text = SPEC .. ('target "%s"\naccumulate (2)\nparallel "ddp"\n'):format(target)
        local p = programs.build("best_ranks_" .. target, text, { comm = target == "c" and "mpi" or nil })
        local how = target == "c" and { ranks = 2 }
            or { before = { t.root .. "/tests/device/ranks", "2" }, env = environment() }
        resumed(t, p, programs, how)
    end)
end

add("more is better for the accuracy", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("best_accuracy", (SPEC:gsub('best = "loss"', 'best = "accuracy"')
        :gsub(", patience = 6, min_delta = 0.01", "")))
    local folder, log = trained(t, programs, p, {})
    local evals, _, ended = read(t, log)
    t.equal(ended.reason, "done")
    t.equal(cycles_in(folder)[1], 4 * truth(evals, "accuracy", -1))
end)

-- A save that fails: the checkpoint of the best before stays, and later evaluations are held against that.
add("a best checkpoint that cannot be written", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p, found = programs.build("best", SPEC), false
    for n = 1, 12 do                                 -- the folder of the save at cycle 8 is made by one of the first
        local folder = t.temp()
        local result = programs.train(p, { "--cycles", 9, "--checkpoint", folder, status = false, env = {
            "LD_PRELOAD=" .. t.root .. "/" .. t.build .. "/tests/faults/faults.so", "GA_FAIL_PROGRAM=train",
            ("GA_FAIL_AT=mkdir:%d=ENOSPC"):format(n), "GAGEN_TIMEOUT=300" } })
        if result.err:find "cycle 8: .*training goes on" then
            found = true
            local best = json.read(host.read(folder .. "/cycle-000000009/manifest.json"):match '"best":(%b{})')
            t.equal(best.cycle, 4)
            t.equal(cycles_in(folder), { 4, 9 })
        end
    end
    assert(found)
end)

-- The evaluation nearest to each tenth of the run, the later of two; the end.
local function tenths(cycles, spacing)
    local set, list = { [cycles] = true }, {}
    for i = 1, 10 do
        local best
        for cycle = spacing, cycles, spacing do
            if not best or math.abs(10 * cycle - i * cycles) <= math.abs(10 * best - i * cycles) then best = cycle end
        end
        if best then set[best] = true end
    end
    for cycle in pairs(set) do list[#list + 1] = cycle end
    table.sort(list)
    return list
end

add("without being asked: each tenth of the run, and the end", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local plain = SPEC:gsub("checkpoint [^\n]*\n", ""):gsub(", patience = 6, min_delta = 0.01", "")
    local p = programs.build("tenths", plain)
    for _, cycles in ipairs { 120, 97, 30, 7, 3 } do
        local folder, log = trained(t, programs, p, { "--cycles", cycles })
        local _, saved = read(t, log)
        t.equal(saved, tenths(cycles, 4), cycles)
        t.equal(cycles_in(folder), table.move(saved, math.max(1, #saved - 2), #saved, 1, {}))
    end
    local by_epoch = programs.build("tenths_epoch", (plain:gsub("every = 4", 'every = "epoch"')))
    local _, saved = read(t, select(2, trained(t, programs, by_epoch, {})))
    t.equal(saved, tenths(120, 14))
    local without = programs.build("tenths_plain", (plain:gsub("eval  [^\n]*\n", "")))
    _, saved = read(t, select(2, trained(t, programs, without, { "--cycles", 33 })))
    t.equal(saved, tenths(33, 1))
    for every, expected in next, { ['"end"'] = { 33 }, ['"epoch"'] = { 14, 28, 33 }, ["20"] = { 20, 33 } } do
        local asked = programs.build("tenths_asked", plain .. "checkpoint { every = " .. every .. " }\n")
        _, saved = read(t, select(2, trained(t, programs, asked, { "--cycles", 33 })))
        t.equal(saved, expected, every)
    end
end)

add("refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function refused(from, to, message)
        local text, count = SPEC:gsub(from, to)
        t.equal(count, 1)
        local path = t.temp() .. "/spec.lua"
        t.write(path, text)
        local result = t.run { t.gagen, "check", path, env = { "GAGEN_DATA=" .. programs.folder() .. "/data" } }
        t.equal(result.status, 1)
        t.match(result.err, message)
    end
    refused('best = "loss"', 'best = "f1"',
        "spec.lua:8: checkpoint: best looks at 'f1', and eval does not measure it: "
        .. "expected loss, or another one of loss, accuracy")
    refused("eval  [^\n]*\n", "", "checkpoint: best looks at evaluations: the word eval is missing")
    refused("eval  .*$", "", "spec.lua:6: train: patience looks at evaluations: the word eval is missing")
    refused("patience = 6, ", "", "spec.lua:6: train: min_delta .* expected patience too")
    refused("patience = 6", "patience = 0", "patience")
    refused("keep = 2", 'every = "week"', "every")
end)

return tests
