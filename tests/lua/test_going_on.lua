-- A device starts the next cycle before the host has read what this one computed, unless something is to be done
-- between both: what a run says, evaluates, saves and stops at is what the C target does.
local devices = dofile "tests/lua/devices.lua"
local open, checked = devices.open, devices.checked

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
accumulate (2)
model      { linear "fc1" { 16 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
precision  "f64"
]]

-- By cycles; by epochs of 44 cycles, with the best kept; with none of both, checkpoints near each tenth of the run.
local CASES = {
    cycles = { 24, 'train { updates = 40, seed = 1 }\neval { every = 5, metrics = { "loss" } }\n'
        .. "checkpoint { every = 4 }\n" },
    epochs = { 92, 'train { epochs = 3, seed = 1 }\neval { every = "epoch", metrics = { "loss" } }\n'
        .. 'checkpoint { every = "epoch", best = "loss" }\nlog { every = 10 }\n' },
    tenths = { 40, "train { updates = 40, seed = 1 }\n" },
}

-- The events of a run without what depends on time, or on the target.
local function told(events)
    local list = {}
    for _, e in ipairs(events) do
        if e.event == "update" or e.event == "eval" or e.event == "checkpoint" or e.event == "end" then
            list[#list + 1] = ("%s %s %s %s"):format(e.event, e.cycle,
                type(e.loss) == "number" and ("%.9g"):format(e.loss) or e.loss,
                e.reason or e.epoch)
        end
    end
    return table.concat(list, "\n")
end

for name, case in next, CASES do
    add(("updates, evaluations and checkpoints in the order of the C target: by %s"):format(name), function(t)
        local programs, environment = open(t)
        local oracle = programs.build("going_on_c_" .. name, SPEC .. case[2])
        local device = programs.build("going_on_" .. name, SPEC .. case[2] .. 'target "cuda"\n')
        local expected = told(programs.events(oracle, { "--cycles", case[1] }))
        t.contains(expected, "checkpoint")
        for seed = 1, name == "cycles" and 2 or 1 do
            t.equal(told(programs.events(device, { "--cycles", case[1], env = environment(checked(seed)) })), expected)
        end
    end)
end

-- A program of the case 'cycles' that says on stderr behind which cycles the next one was under way.
local function saying(t, programs, name)
    local p = programs.build(name, SPEC .. CASES.cycles[2] .. 'target "cuda"\n')
    local line = "    GA_TRY(finish(m, slot, e));\n    return commit"
    local text, count = host.read(p.folder .. "/step.c"):gsub(line:gsub("%p", "%%%0"), function()
        return '    if (m->begun) ga_say("behind %lld", (long long)m->count.cycle + 1);\n' .. line
    end)
    t.equal(count, 1)
    programs.edit(p, "step.c", text)
    return p
end

add("the next cycle is under way, but not behind one with an evaluation, a checkpoint or the end", function(t)
    local programs, environment = open(t)
    local p, some = saying(t, programs, "going_on_said"), 0
    local result = programs.train(p, { "--cycles", 24, env = environment() })
    for cycle in result.err:gmatch "behind (%d+)" do
        local n = tonumber(cycle)
        assert(n % 5 > 0 and n % 4 > 0 and n < 24, "cycle " .. n)
        some = some + 1
    end
    assert(some > 0, result.err)      -- of 14: the reader of rows may be late
end)

add("found: the host reads a step block before it has come back", function(t)
    local programs, environment = open(t)
    devices.needs_library(t)
    local p = programs.build("going_on_early", SPEC .. CASES.cycles[2] .. 'target "cuda"\n')
    local options = { "--cycles", 24, env = environment(checked(1)) }
    local expected = told(programs.events(p, options))
    local text, count = host.read(p.folder .. "/step.c"):gsub("GA_TRY%(ga_device_wait_host[^\n]*", "(void)e;")
    t.equal(count, 1)
    programs.edit(p, "step.c", text)
    local log = t.temp() .. "/log"
    local result = programs.train(p, { "--cycles", 24, "--log", log, env = options.env, status = false })
    assert(result.status ~= 0 or told(t.load("tests/lua/json.lua").lines(host.read(log))) ~= expected)
end)

-- A signal comes at any time; what is saved is the state behind the cycle that the log ends with.
add("a signal saves the state behind the last cycle of the log, and the run goes on from it", function(t)
    local programs, environment = open(t)
    local p = programs.build("going_on_signal", SPEC .. 'train { updates = 100000, seed = 1 }\n'
        .. 'checkpoint { every = "end" }\ntarget "cuda"\n')
    for _, signal in ipairs { "TERM", "USR2" } do
        local folder = t.temp()
        local result = t.shell(([[export ENV
            TRAIN --quiet --cycles 100000 --log FOLDER/log --checkpoint FOLDER/c & run=$!
            until grep -qs '"cycle": *[5-9]' FOLDER/log; do sleep 0.02; done
            kill -SIGNAL $run
            [ SIGNAL = TERM ] || { until grep -qs '"checkpoint"' FOLDER/log; do sleep 0.02; done; kill -TERM $run; }
            wait $run]]):gsub("%u+", { ENV = table.concat(environment(), " "), TRAIN = p.train, FOLDER = folder,
            SIGNAL = signal }))
        t.equal(result.status, 75, result.err)
        local list, saved = t.load("tests/lua/json.lua").lines(host.read(folder .. "/log")), nil
        local cycle = 0
        for _, e in ipairs(list) do
            if e.event == "update" then
                t.equal(e.cycle, cycle + 1)
                cycle = e.cycle
            elseif e.event == "checkpoint" then
                t.equal(e.cycle, cycle)
                saved = e.cycle
            end
        end
        t.equal({ list[#list].cycle, list[#list].reason, saved }, { cycle, "signal", cycle })
        programs.identical(programs.dump(p, { "--cycles", cycle + 3, "--resume", "latest", "--checkpoint",
            folder .. "/c", env = environment() }), programs.dump(p, { "--cycles", cycle + 3, env = environment() }),
            { "parameters", "state" })
    end
end)

add("a gradient that is not finite ends the run as on the C target", function(t)
    local programs, environment = open(t)
    local text = SPEC:gsub('"adamw", lr = 1e%-2', '"sgd", lr = 1e200') .. "train { updates = 40, seed = 1 }\n"
    local seen = {}
    for _, target in ipairs { "c", "cuda" } do
        local p = programs.build("going_on_nonfinite_" .. target, text .. ('target "%s"\n'):format(target))
        local log = t.temp() .. "/log"
        programs.train(p, { "--log", log, env = target == "cuda" and environment(checked(1)) or nil, status = 4 })
        seen[target] = told(t.load("tests/lua/json.lua").lines(host.read(log)))
    end
    t.contains(seen.c, "nonfinite")
    t.equal(seen.cuda, seen.c)
end)

return tests
