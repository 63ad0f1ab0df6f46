-- Stopping changes nothing: after a stop at any micro-step, a signal, kill -9 while a checkpoint is written, or damage
-- to a checkpoint, the resumed run ends with the bits of the uninterrupted run.

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

-- The logged figures of each cycle, without times.
local function figures(t, log)
    local by_cycle = {}
    for _, event in ipairs(t.load("tests/lua/json.lua").lines(host.read(log))) do
        if event.event == "update" then
            local line = ("update %d micro %d epoch %d loss %.9g lr %.9g norm %.9g weight %d rows %d"):format(
                event.update, event.micro, event.epoch, event.loss, event.lr, event.grad_norm, event.weight,
                event.rows)
            t.equal(by_cycle[event.cycle] or line, line, "cycle " .. event.cycle .. " when it is done again")
            by_cycle[event.cycle] = line
        end
    end
    return by_cycle
end

-- Stops at each of the micro-steps, goes on, and compares with the run that was not stopped: the bits
-- of parameters, gradient and state, and the figures of every cycle.
local function stop_at(t, p, cycles, micros, how)
    local programs = t.load("tests/lua/programs.lua")(t)
    how = how or {}
    local function options(more)
        local o = { ranks = how.ranks, "--cycles", cycles, "--log", how.log }
        return table.move(more, 1, #more, #o + 1, o)
    end
    how.log = t.temp() .. "/log"
    local straight, expected = programs.dump(p, options { "--threads", 1 }), figures(t, how.log)
    t.equal(#expected, cycles)
    for _, k in ipairs(micros) do
        local checkpoint = t.temp()
        how.log = checkpoint .. "/log"
        local first = options { "--stop-micro", k, "--checkpoint", checkpoint, "--threads", how.threads or 1 }
        first.status = 75
        programs.train(p, first)
        if how.stopped then how.stopped(k, checkpoint) end
        local resumed = programs.dump(p, options { "--resume", "latest", "--checkpoint", checkpoint, "--threads",
            how.threads and how.threads + 1 or 1 })
        programs.identical(resumed, straight, FILES)
        t.equal(figures(t, how.log), expected, "stopped at micro-step " .. k)
    end
end

local function range(first, last)
    local list = {}
    for k = first, last do list[#list + 1] = k end
    return list
end

local function other(t, name, changes)
    local programs, text = t.load("tests/lua/programs.lua")(t), spec()
    for from, to in next, changes do
        local changed, count = text:gsub(from, to)
        t.equal(count, 1, from)
        text = changed
    end
    return programs.build("resume_" .. name, text)
end

add("stopped at every micro-step", function(t)
    local _, p = small(t)
    stop_at(t, p, CYCLES, range(1, 13), { stopped = function(k, checkpoint)
        local name = ("cycle-%09d"):format(k // 4) .. (k % 4 > 0 and "-r" .. k % 4 or "")
        t.equal(host.exists(checkpoint .. "/" .. name .. "/manifest.json"), "file")
        t.equal(host.exists(checkpoint .. "/" .. name .. "/gradient-1of1.safetensors"),
            k % 4 > 0 and "file", "a gradient is saved inside a cycle only: " .. name)
    end })
end)

-- Cycles of 2, 2, 4, 4, 1, 1 and then of 3, of which 5 are in the rest of the epoch.
local function table_of_counts(t)
    return other(t, "table", { ["accumulate %(4%)"] = "accumulate { 2, later = { [2] = 4, [4] = 1, [6] = 3 } }",
        ["tanh {},"] = "tanh {}, dropout(0.4)," })
end

add("stopped inside a cycle with dropout", function(t)
    stop_at(t, table_of_counts(t), CYCLES, range(4, 9))
end)

-- The 90 rows of tiny.csv are 30 micro-batches: 7 cycles an epoch and 2 left.
add("stopped in later epochs, with another number of threads", function(t)
    local _, p = small(t)
    stop_at(t, p, 16, { 27, 28, 29, 47, 56, 57 }, { threads = 2 })
end)

-- 30 micro-batches an epoch: cycles of 2, then of 5; the last one of an epoch has 3, or 3 and 2 of the next epoch.
local function lengths(t, tail)
    return other(t, tail .. "_later", { ["accumulate %(4%)"] =
        ('accumulate { 2, later = { [1] = 5 }, tail = %q }'):format(tail) })
end

add("stopped around a tail that is flushed", function(t)
    stop_at(t, lengths(t, "flush"), 9, range(26, 34))
end)

add("stopped around a tail that is carried into the next epoch", function(t)
    stop_at(t, lengths(t, "carry"), 8, range(26, 35))
end)

-- 30 micro-batches an epoch: the eighth cycle has 2 of this epoch and 2 of the next one.
add("stopped where a cycle goes on in the next epoch: what the end of an epoch asks for follows", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("resume_epoch_ends", (spec('eval { every = "epoch" }\n'
        .. 'checkpoint { every = "epoch", keep = 9 }\n'):gsub('"tiny.csv"', '%0, eval = "tiny.csv"')
        :gsub("accumulate %(4%)", 'accumulate { 4, tail = "carry" }')))
    local function run(o)
        local evaluated = {}
        for _, event in ipairs(programs.events(p, table.move(o, 1, #o, 3, { "--cycles", 10, status = o.status }))) do
            if event.event == "eval" and event.cycle < 10 then table.insert(evaluated, event) end
        end
        return evaluated
    end
    local straight = run { "--checkpoint", t.temp() }
    t.equal({ #straight, straight[1].cycle }, { 1, 8 })
    for _, k in ipairs { 29, 30, 31 } do
        local folder = t.temp()
        t.equal(run { "--checkpoint", folder, "--stop-micro", k, status = 75 }, {})
        t.equal(run { "--checkpoint", folder, "--resume", "latest" }, straight, "stopped at micro-step " .. k)
        t.equal(host.exists(folder .. "/cycle-000000008"), "folder")
    end
end)

add("stopped where the number of micro-steps changes", function(t)
    stop_at(t, table_of_counts(t), 8, range(1, 18))
end)

add("stopped in an epoch with a last micro-batch that is not full", function(t)
    stop_at(t, other(t, "pad", { ["batch      %(3%)"] = "batch      (4)", ['target = "last"'] =
        'target = "last", last = "pad"', ["accumulate %(4%)"] = 'accumulate { 4, tail = "flush" }' }), 7,
        range(20, 26))
end)

for _, tail in ipairs { "drop", "flush", "carry" } do
    add("stopped in cycles of other lengths: tail " .. tail, function(t)
        local programs = t.load("tests/lua/programs.lua")(t)
        local p, cycles = lengths(t, tail), 9
        if tail == "drop" then p, cycles = table_of_counts(t), 13 end
        local straight = programs.dump(p, { "--cycles", cycles })
        for _, k in ipairs { 1, 2, 6, 27, 28, 29, 30, 31, 34 } do
            local checkpoint = t.temp()
            programs.train(p, { "--cycles", cycles, "--stop-micro", k, "--checkpoint", checkpoint, status = 75 })
            programs.identical(programs.dump(p, { "--cycles", cycles, "--resume", "latest", "--checkpoint",
                checkpoint }), straight, FILES)
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

add("an evaluation of a mid-cycle checkpoint counts only its own rows", function(t)
    local programs, environment = dofile("tests/lua/devices.lua").open(t)
    local text = spec('eval       { metrics = { "loss", "accuracy" } }\n'):gsub('"tiny.csv"', '%0, eval = "tiny.csv"')
    for target, env in next, { c = false, cuda = environment() } do
        local p, found = programs.build("resume_eval_" .. target, text .. ('target "%s"\n'):format(target)), {}
        for i, options in ipairs { { "--stop-micro", 6, status = 75 }, { "--cycles", 1 } } do
            local folder = t.temp()
            options.env = env or nil
            programs.train(p, table.move({ "--checkpoint", folder }, 1, 2, #options + 1, options))
            for _, event in ipairs(programs.events(p, { "--eval", "--resume", "latest", "--checkpoint", folder,
                env = env or nil })) do
                if event.event == "eval" then found[i] = event end
            end
        end
        t.equal(found[1], found[2])
        t.equal(found[1].rows, 90)
    end
end)

add("two ranks stopped inside a cycle", function(t)
    local _, p = small(t, 'parallel "ddp"\n', { comm = "mpi" })
    stop_at(t, p, CYCLES, { 3, 4, 6 }, { ranks = 2 })
end)

-- A checkpoint may not miss sums that are still on their way.
local LATE = "tests/e2e/late_mpi.c"

-- A cycle has the same rows for any number of ranks: a partial cycle of two ranks is resumed with one, and vice versa.
-- Each number has a mode of its own, and a checkpoint serves all of them.
add("stopped inside a cycle, resumed with other ranks and modes", function(t)
    local programs, p, text = t.load("tests/lua/programs.lua")(t), {}, spec('precision  "f64"\n')
    for ranks, mode in next, { "ddp", "zero1", [4] = "zero2" } do
        local one = text:gsub("batch      %(3%)\naccumulate %(4%)",
            ('parallel { %q, ranks = %d }\nbatch { 3, global = 24 }'):format(mode, ranks))
        p[ranks] = programs.build("resume_of_" .. ranks, one, { comm = "mpi", sources = { LATE } })
    end
    local straight = programs.dump(p[1], { ranks = 1, "--cycles", 5 }) .. "/parameters.safetensors"
    for _, case in ipairs { { 2, 3, 1, 6 }, { 2, 7, 1, 14 }, { 1, 6, 2, 3 }, { 1, 12, 2, 6 }, { 2, 4, 1, 8 },
        { 4, 1, 2, 2 }, { 4, 3, 1, 12 }, { 2, 2, 4, 1 }, { 1, 12, 4, 3 }, { 4, 2, 2, 4 } } do
        local from, k, to, done = table.unpack(case)
        local checkpoint, log = t.temp(), t.temp() .. "/log"
        programs.train(p[from], { ranks = from, "--cycles", 5, "--stop-micro", k, "--checkpoint", checkpoint,
            status = 75 })
        local dump = t.temp()
        local result = programs.train(p[to], { ranks = to, "--cycles", 5, "--resume", "latest", "--checkpoint",
            checkpoint, "--dump", dump, "--log", log })
        t.match(result.err, "resume: the number of ranks is " .. to .. ", the checkpoint has " .. from .. "\n")
        t.equal(result.err:find("summed in their order") ~= nil, k * from % 8 > 0)
        t.match(host.read(log), '"event":"update","cycle":' .. k * from // 8 + 1 .. ',"update":%d+,"micro":'
            .. k + 8 // to - done % (8 // to) .. ',"epoch":0,"rows":24,')
        local worst, where = programs.difference(dump .. "/parameters.safetensors", straight)
        assert(worst <= 1e-12, ("%d to %d ranks at %d: %s differs by %.3g"):format(from, to, k, where, worst))
    end
    local checkpoint = t.temp()
    programs.train(p[1], { ranks = 1, "--stop-micro", 5, "--checkpoint", checkpoint, status = 75 })
    local result = programs.train(p[2], { ranks = 2, "--resume", "latest", "--checkpoint", checkpoint, status = 1 })
    t.contains(result.err, "lies inside a cycle, behind 5 of 8 micro-steps of 3 rows on 1 rank; this run has "
        .. "cycles of 4 micro-steps of 3 rows on 2: use the same numbers, or a checkpoint of a whole cycle")
end)

-- Behind a cycle that began elsewhere than at a multiple of its length, no row is trained on twice.
for _, case in ipairs { { "over two epochs", 3, 14, 'accumulate { %d, tail = "carry" }' },
    { "of another length", 2, 8, "accumulate { %d, later = { [2] = %d } }" } } do
    local name, stop, micros, words = table.unpack(case)
    add("stopped behind a cycle " .. name .. ", resumed with other ranks", function(t)
        local programs, p = t.load("tests/lua/programs.lua")(t), {}
        for ranks, mode in next, { "ddp", "zero2" } do
            local text = spec(('precision "f64"\nparallel %q\n'):format(mode)):gsub("accumulate %(4%)",
                (words:format(micros // ranks, 12 // ranks)))
            p[ranks] = programs.build(("resume_behind_%d_%s"):format(ranks, name:sub(-3)), text, { comm = "mpi" })
        end
        local straight = programs.dump(p[1], { ranks = 1, "--cycles", 5 })
        for from = 1, 2 do
            local to, checkpoint, dump = 3 - from, t.temp(), t.temp()
            programs.train(p[from], { ranks = from, "--cycles", stop, "--checkpoint", checkpoint })
            programs.train(p[to], { ranks = to, "--cycles", 5, "--resume", "latest", "--checkpoint", checkpoint,
                "--dump", dump })
            programs.close(dump, straight, 1e-12)
        end
    end)
end

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
    local log = t.temp() .. "/log"
    local straight = programs.dump(p, { "--cycles", 30, "--log", log })
    local expected = figures(t, log)
    local whole = t.clock() - started
    local kills, ends, folder = 0, 0, t.temp() .. "/c"
    assert(host.folder(folder))
    math.randomseed(5)
    local wanted = t.environment("GAGEN_TEST_ALL") and 200 or 20
    while kills < wanted or ends == 0 do
        local o = { "--cycles", 30, "--checkpoint", folder, "--log", folder .. "/log", status = false,
            before = { "timeout", "-s", "KILL", ("%.4f"):format(math.max(1, kills / wanted) * whole * math.random()) } }
        if has_checkpoint(folder) then table.move({ "--resume", "latest" }, 1, 2, #o + 1, o) end
        local result = programs.train(p, o)
        if result.status == 0 then                 -- done: the bits must be those of the uninterrupted run
            programs.identical(programs.dump(p, { "--cycles", 30, "--resume", "latest", "--checkpoint", folder }),
                straight)
            t.equal(figures(t, folder .. "/log"), expected)
            ends, folder = ends + 1, t.temp() .. "/c"
            assert(host.folder(folder))
        else
            t.equal(result.status, 128 + 9, result.err)
            assert(not result.err:find("rejected"), result.err)
            kills = kills + 1
        end
    end
    for _, name in ipairs(host.exists(folder) and host.list(folder) or {}) do
        assert(name:find("^cycle%-%d+$") or name == ".lock" or name == "log"
            or name:find("^%.tmp%-"), "left behind: " .. name)
    end
end)

local function flip_byte(path, at)
    local text = assert(host.read(path))
    local file = assert(io.open(path, "wb"))
    file:write(text:sub(1, at - 1), string.char(text:byte(at) ~ 1), text:sub(at + 1))
    file:close()
end

add("a damaged checkpoint is named and the one before is used", function(t)
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

add("a checkpoint that cannot be resumed is refused with the reason", function(t)
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
    result = programs.train(p, { "--cycles", 2, "--resume", "latest", "--checkpoint", folder, status = 1 })
    t.match(result.err, "/cycle%-000000003: of cycle 3, but training ends at cycle 2\n$")
    programs.train(p, { "--resume", "latest", "--checkpoint", folder, "--eval" })
    refused("%-%-stop%-micro 12: 12 micro%-steps are done already\n$", "--resume", "latest", "--checkpoint", folder,
        "--stop-micro", 12)
end)

local MANIFEST = {
    format = "number", version = "string", program = "string", run = "string", spec_sha256 = "string", model_hash = "string",
    micro = "number", cycle = "number", update = "number", skipped = "number", skipped_in_row = "number",
    epoch = "number", position = "number", batch = "number", accumulate = "number", r = "number", weight = "number",
    loss_sum = "number", rows = "number", nominal = "number", seed = "number", scaler = "table", world = "number",
    target = "string", profile = "string", tuning_sha256 = "string", finite = "boolean", data = "table", files = "table",
    numbers = "table", checksum = "string",
}

add("a manifest has all fields", function(t)
    local programs, p = small(t)
    local folder = t.temp()
    programs.train(p, { "--stop-micro", 30, "--checkpoint", folder, status = 75 })
    local base = folder .. "/cycle-000000007-r2/"
    local manifest = t.load("tests/lua/json.lua").read(host.read(base .. "manifest.json"))
    for name, kind in next, MANIFEST do t.equal(type(manifest[name]), kind, name) end
    for name in next, manifest do assert(MANIFEST[name], name .. " is not described") end
    local found = {}
    for name in next, { micro = 0, cycle = 0, update = 0, epoch = 0, position = 0, batch = 0, accumulate = 0, r = 0,
        weight = 0, rows = 0, nominal = 0, seed = 0, world = 0 } do found[name] = manifest[name] end
    t.equal(found, { micro = 30, cycle = 7, update = 7, epoch = 1, position = 2, batch = 3, accumulate = 4, r = 2,
        weight = 6, rows = 6, nominal = 12, seed = 3, world = 1 })
    t.equal(#manifest.files, 3)
    for i, name in ipairs { "model", "optimizer", "gradient-1of1" } do
        local file = manifest.files[i]
        t.equal({ file.name, file.bytes }, { name .. ".safetensors", #host.read(base .. file.name) })
        t.match(file.checksums[1], "^%x%x%x%x%x%x%x%x$")
    end
    t.equal({ #manifest.data, manifest.data[1].path, manifest.data[1].bytes },
        { 1, "tiny.csv", #host.read(programs.folder() .. "/data/tiny.csv") })
end)

-- Another rate, and another weight, which counts inside a cycle only.
local RATE = { ["lr = 1e%-2"] = "lr = 1e-3", ['"cross_entropy"'] = '{ %0, weight = "micro" }' }

-- Another program would delete those checkpoints one after the other.
add("a folder with checkpoints of another program is refused and not changed", function(t)
    local programs, p = small(t)
    local folder = t.temp()
    programs.train(p, { "--cycles", 2, "--checkpoint", folder })
    local another = other(t, "rate", RATE)
    local result = programs.train(another, { "--cycles", 1, "--checkpoint", folder, status = 1 })
    t.contains(result.err, folder .. ": holds checkpoints of 'resume' (cycle-000000002), which 'resume_rate' "
        .. "would replace by its own: name another folder with --checkpoint, or go on from one with --resume")
    t.equal(host.list(folder), { ".lock", "cycle-000000001", "cycle-000000002" })
    programs.train(another, { "--cycles", 3, "--resume", "latest", "--checkpoint", folder })
    t.equal(host.list(folder), { ".lock", "cycle-000000001", "cycle-000000002", "cycle-000000003" })
end)

add("mid-cycle the weight of a cycle may not differ", function(t)
    local programs, p = small(t)
    local folder = t.temp()
    programs.train(p, { "--stop-micro", 6, "--checkpoint", folder, status = 75 })
    local other_weight = other(t, "rate", RATE)
    local result = programs.train(other_weight, { "--resume", "latest", "--checkpoint", folder, status = 1 })
    t.contains(result.err, "lies inside a cycle whose weight is 12 when it is full, and 4 in this run: "
        .. "use the same loss.weight and accumulate, or a checkpoint of a whole cycle")
    programs.train(p, { "--resume", "latest", "--checkpoint", folder, "--cycles", 2 })
    programs.train(other_weight, { "--resume", "latest", "--checkpoint", folder, "--cycles", 3 })
end)

add("differences from the spec of a checkpoint that are allowed", function(t)
    local programs, p = small(t, SAVING)
    local folder = t.temp()
    programs.train(p, { "--cycles", 3, "--checkpoint", folder })
    local copy = t.temp() .. "/moved"
    t.equal(t.run { "cp", "-r", folder .. "/cycle-000000002", copy }.status, 0)
    programs.identical(programs.dump(p, { "--cycles", 6, "--resume", copy }), programs.dump(p, { "--cycles", 6 }))
    local function resumed(name, changes, said, place)
        local q, log = other(t, name, changes), t.temp() .. "/log"
        local result = programs.train(q, { "--resume", copy, "--cycles", 3, "--log", log })
        t.match(result.err, "^resume: spec_sha256 is '%x+', the checkpoint has '%x+'\n" .. said .. "ready\n$")
        t.match(host.read(log), '"event":"update","cycle":3,"update":3,' .. place)
    end
    resumed("rate", RATE, "", '"micro":12,"epoch":0,"rows":12,')
    resumed("more", { ["accumulate %(4%)"] = "accumulate (5)", ["batch      %(3%)"] = "batch      (6)" },
        "resume: rows of a micro%-step is 6, the checkpoint has 3\nresume: accumulate is 5, the checkpoint has 4\n",
        '"micro":13,"epoch":0,"rows":30,')
    local function refused(name, changes, pattern)
        local result = programs.train(other(t, name, changes), { "--resume", copy, status = 1 })
        t.match(result.err, pattern)
    end
    refused("sgd", { ["adamw"] = "sgd" }, "/moved: has optimizer%.safetensors, which this program has no use for: ")
    refused("momentum", { ['"adamw", lr = 1e%-2'] = '"sgd", lr = 1e-2, momentum = 0.9' },
        "optimizer%.safetensors: does not fit the model, nothing loaded: [^\n]* is missing")
    local double = other(t, "double", { ["train      {"] = 'precision "f64"\ntrain      {' })
    programs.train(double, { "--resume", copy, "--cycles", 3, "--checkpoint", folder .. "/f64" })
    local result = programs.train(p, { "--resume", folder .. "/f64/cycle-000000003", status = 1 })
    t.match(result.err, "'fc1%.weight' is F64, which F32 would round")
    programs.train(p, { "--init", folder .. "/f64/cycle-000000003/model.safetensors", "--cycles", 1 })
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
