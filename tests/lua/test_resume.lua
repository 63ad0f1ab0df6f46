-- Stopping changes nothing: at any micro-step, by a signal, by kill -9 while a checkpoint is being
-- written, or with a damaged checkpoint, the resumed run ends with the bits of the straight one.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local CYCLES = 5

local function spec(more)
    return [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (3)
accumulate (4)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
schedule   { "cosine", warmup = 3 }
train      { updates = 40, seed = 3 }
]] .. (more or "")
end

local function small(t, more, how)
    local programs = t.load("tests/lua/programs.lua")(t)
    return programs, programs.build(how and how.comm and "resume_" .. how.comm or more and "resume_saving"
        or "resume", spec(more), how)
end

local FILES = { "parameters", "gradients", "state" }

add("stopped at every micro-step", function(t)
    local programs, p = small(t)
    local straight = programs.dump(p, { "--cycles", CYCLES })
    for k = 1, 9 do
        local checkpoint = t.temp()
        local stopped = programs.train(p, { "--cycles", CYCLES, "--stop-micro", k, "--checkpoint", checkpoint,
            status = 75 })
        t.equal(stopped.err, "ready\n")
        local name = ("cycle-%09d"):format(k // 4) .. (k % 4 > 0 and "-r" .. k % 4 or "")
        t.equal(host.exists(checkpoint .. "/" .. name .. "/gradient-1of1.safetensors"),
            k % 4 > 0 and "file", "a gradient is saved inside a cycle only: " .. name)
        local resumed = programs.dump(p, { "--cycles", CYCLES, "--resume", "latest", "--checkpoint", checkpoint })
        programs.identical(resumed, straight, FILES)
    end
end)

add("stopped inside a cycle with dropout", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local text = spec():gsub("tanh {},", "tanh {}, dropout(0.4),")
    local p = programs.build("resume_dropout", text)
    local straight = programs.dump(p, { "--cycles", CYCLES })
    for k = 5, 8 do
        local checkpoint = t.temp()
        programs.train(p, { "--cycles", CYCLES, "--stop-micro", k, "--checkpoint", checkpoint, status = 75 })
        programs.identical(programs.dump(p, { "--cycles", CYCLES, "--resume", "latest", "--checkpoint",
            checkpoint }), straight, FILES)
    end
end)

-- The 90 rows of tiny.csv make 7 cycles an epoch: 16 cycles end in the third.
add("stopped in the second epoch, with another number of threads", function(t)
    local programs, p = small(t)
    local straight = programs.dump(p, { "--cycles", 16, "--threads", 1 })
    for _, k in ipairs { 28, 29, 47 } do
        local checkpoint = t.temp()
        programs.train(p, { "--cycles", 16, "--stop-micro", k, "--checkpoint", checkpoint, "--threads", 2,
            status = 75 })
        programs.identical(programs.dump(p, { "--cycles", 16, "--resume", "latest", "--checkpoint", checkpoint,
            "--threads", 3 }), straight, FILES)
    end
end)

-- 30 micro-batches an epoch: cycles of 2, then of 5; the last one of an epoch has 3, or 3 and 2 of the
-- next epoch.
for _, tail in ipairs { "drop", "flush", "carry" } do
    add("stopped in cycles of other lengths: tail " .. tail, function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        local p = programs.build("resume_" .. tail, (spec():gsub("accumulate %(4%)",
            ('accumulate { 2, later = { [1] = 5 }, tail = %q }'):format(tail))))
        local straight = programs.dump(p, { "--cycles", 9 })
        for _, k in ipairs { 1, 2, 6, 27, 28, 29, 30, 31, 34 } do
            local checkpoint = t.temp()
            programs.train(p, { "--cycles", 9, "--stop-micro", k, "--checkpoint", checkpoint, status = 75 })
            programs.identical(programs.dump(p, { "--cycles", 9, "--resume", "latest", "--checkpoint", checkpoint }),
                straight, FILES)
        end
    end)
end

add("stopped twice inside one cycle", function(t)
    local programs, p = small(t)
    local straight, checkpoint = programs.dump(p, { "--cycles", CYCLES }), t.temp()
    programs.train(p, { "--stop-micro", 5, "--checkpoint", checkpoint, status = 75 })
    for _, k in ipairs { 6, 7, 11 } do
        programs.train(p, { "--stop-micro", k, "--checkpoint", checkpoint, "--resume", "latest", status = 75 })
    end
    programs.identical(programs.dump(p, { "--cycles", CYCLES, "--resume", "latest", "--checkpoint", checkpoint }),
        straight, FILES)
end)

add("two ranks stopped inside a cycle", function(t)
    local programs, p = small(t, 'parallel "ddp"\n', { comm = "mpi" })
    local function options(...) return { ranks = 2, "--threads", 1, "--cycles", CYCLES, ... } end
    local straight = programs.dump(p, options())
    for _, k in ipairs { 3, 4, 6 } do
        local checkpoint, stop = t.temp(), nil
        stop = options("--stop-micro", k, "--checkpoint", checkpoint)
        stop.status = 75
        programs.train(p, stop)
        programs.identical(programs.dump(p, options("--resume", "latest", "--checkpoint", checkpoint)), straight,
            FILES)
    end
end)

-- Starts an endless run, sends it `signal` once it trains, returns its status.
local function signalled(t, p, signal, log, checkpoint)
    return t.shell(("%s --quiet --cycles 100000000 --log %s --checkpoint %s & pid=$!; "
        .. "until grep -qs update %s; do sleep 0.02; done; kill -%s $pid; wait $pid"):format(p.train, log,
        checkpoint, log, signal)).status
end

add("signals end a cycle, save and give status 75", function(t)
    local programs, p = small(t)
    local json = t.load("tests/lua/json.lua")
    for _, signal in ipairs { "TERM", "INT", "USR1" } do
        local folder = t.temp()
        t.equal(signalled(t, p, signal, folder .. "/log", folder .. "/c"), 75, signal)
        local events = json.lines(host.read(folder .. "/log"))
        local last = events[#events]
        t.equal(last.reason, "signal")
        t.equal(events[#events - 1].event, "checkpoint")
        t.equal(events[#events - 1].cycle, last.cycle)
        local resumed = programs.dump(p, { "--resume", "latest", "--checkpoint", folder .. "/c", "--cycles",
            last.cycle + 3 })
        programs.identical(resumed, programs.dump(p, { "--cycles", last.cycle + 3 }), FILES)
    end
end)

local SAVING = "checkpoint { every = 1, keep = 2 }\n"

local function has_checkpoint(folder)
    for _, name in ipairs(host.exists(folder) and host.list(folder) or {}) do
        if name:find("^cycle%-") then return true end
    end
    return false
end

add("kill -9 while checkpoints are written", function(t)
    local programs, p = small(t, SAVING)
    local started = t.clock()
    local straight = programs.dump(p, { "--cycles", 30 })
    local whole = t.clock() - started
    local kills, ends, folder = 0, 0, t.temp() .. "/c"
    math.randomseed(5)
    while kills < 50 do
        local o = { "--cycles", 30, "--checkpoint", folder, status = false,
            before = { "timeout", "-s", "KILL", ("%.4f"):format(whole * math.random()) } }
        if has_checkpoint(folder) then table.move({ "--resume", "latest" }, 1, 2, #o + 1, o) end
        local result = programs.train(p, o)
        if result.status == 0 then                 -- done: the bits must be those of the straight run
            programs.identical(programs.dump(p, { "--cycles", 30, "--resume", "latest", "--checkpoint", folder }),
                straight)
            ends, folder = ends + 1, t.temp() .. "/c"
        else
            t.equal(result.status, 128 + 9, result.err)
            assert(not result.err:find("rejected"), result.err)
            kills = kills + 1
        end
    end
    assert(ends > 0, "no run came to its end between the kills")
    for _, name in ipairs(host.exists(folder) and host.list(folder) or {}) do
        assert(name:find("^cycle%-%d+$") or name == ".lock" or name:find("^%.tmp%-"), "left behind: " .. name)
    end
end)

local function flip_byte(path, at)
    local text = assert(host.read(path))
    local file = assert(io.open(path, "wb"))
    file:write(text:sub(1, at - 1), string.char(text:byte(at) ~ 1), text:sub(at + 1))
    file:close()
end

add("a damaged checkpoint is named and the one before taken", function(t)
    local programs, p = small(t, SAVING)
    local straight = programs.dump(p, { "--cycles", 8 })
    for _, file in ipairs { "model.safetensors", "optimizer.safetensors", "manifest.json" } do
        local folder = t.temp()
        programs.train(p, { "--cycles", 6, "--checkpoint", folder })
        local newest = folder .. "/cycle-000000006/"
        flip_byte(newest .. file, #host.read(newest .. file) // 2)
        local resumed = programs.train(p, { "--cycles", 6, "--resume", "latest", "--checkpoint", folder,
            "--log", folder .. "/log" })
        t.match(resumed.err, "^checkpoint [^\n]*/cycle%-000000006 rejected: " .. file:gsub("%p", "%%%0")
            .. ": [^\n]+\n")
        local events = t.load("tests/lua/json.lua").lines(host.read(folder .. "/log"))
        t.match(events[1].resumed_from, "cycle%-000000005$")
        programs.identical(programs.dump(p, { "--cycles", 8, "--resume", "latest", "--checkpoint", folder }),
            straight, FILES)
    end
end)

add("what cannot be resumed is refused with its reason", function(t)
    local programs, p = small(t, SAVING)
    local folder = t.temp()
    local function refused(pattern, ...)
        local result = programs.train(p, { "--cycles", 3, status = 1, ... })
        t.match(result.err, pattern)
    end
    refused("^resume_saving: [^\n]*: no usable checkpoint found\n$", "--resume", "latest", "--checkpoint", folder)
    programs.train(p, { "--cycles", 2, "--checkpoint", folder })
    refused("written with seed 3, this run has 4: start with %-%-seed 3\n$", "--resume", "latest", "--seed", 4,
        "--checkpoint", folder)
    local other = programs.build("resume_wider", (spec():gsub("{ 8 }", "{ 9 }")))
    local result = programs.train(other, { "--resume", "latest", "--checkpoint", folder, status = 1 })
    t.contains(result.err, "fc1")
    programs.train(p, { "--cycles", 3, "--resume", folder .. "/cycle-000000002", "--checkpoint", folder })
end)

add("two runs in one checkpoint folder: the second is refused", function(t)
    local programs, p = small(t)
    local folder = t.temp()
    local result = t.shell(("%s --quiet --cycles 100000000 --checkpoint %s & pid=$!; "
        .. "until grep -qs pid %s/.lock; do sleep 0.02; done; %s --quiet "
        .. "--cycles 2 --checkpoint %s; echo $?; kill -TERM $pid; wait $pid"):format(p.train, folder, folder,
        p.train, folder))
    t.equal(result.status, 75)
    t.equal(result.out, "1\n")
    t.match(result.err, "in use by another run %(pid %d+ on host ")
    programs.train(p, { "--cycles", 2, "--checkpoint", folder })
end)

return tests
