-- Streamed rows (data { ..., stream = true }): a program trains on them as on the same rows in memory, bit for bit; it
-- stops and resumes anywhere, accepts files of any length, and reports a faulty row after the complete cycles before
-- it.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f)
    tests[#tests + 1] = { name, function(t) f(t, t.load("tests/lua/formats.lua")(t)) end }
end

local FILES = { "parameters", "gradients", "state" }

local MLP = 'model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }'

local function sequence(ids, width)
    return ('model      { embedding "table" { %d, %d }, tanh {}, linear "fc" { %d } }'):format(ids, width, ids)
end

local function spec(data, accumulate, model, rows, more)
    return ([[
data       { %s }
batch      (%d)
accumulate { %s }
%s
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 60, seed = 5 }
eval       { every = "epoch" }
%s]]):format(data, rows, accumulate, model, more or "")
end

local function class(i) return (i * i + i // 4) % 3 end

-- Rows first..last of a file; `wrong`: { row, text } in the place of one.
local function rows(first, last, wrong)
    local list = {}
    for i = first, last do
        list[#list + 1] = wrong and wrong[1] == i and wrong[2]
            or ("%.3f,%.3f,%d"):format(math.sin(i), math.cos(3 * i), class(i))
    end
    return table.concat(list, "\n") .. "\n"
end

local function gzip(t, formats, name)
    local path = formats.programs.folder() .. "/data/" .. name
    t.equal(t.shell(("gzip -nkf '%s'"):format(path)).status, 0)
    return path .. ".gz"
end

-- streams/a_part.csv, b_part.csv.gz: 20 and 27 rows; eval.csv: 8; text of 130 bytes, tokens of 150 in two files each.
local function files(t, formats)
    local letters, tokens = {}, {}
    for i = 1, 130 do letters[i] = string.char(97 + (i * i + i // 7) % 11) end
    for i = 1, 150 do tokens[i] = string.pack("<I2", (i * i + i // 5) % 23) end
    formats.write("streams/a_part.csv", rows(1, 20))
    formats.write("streams/b_part.csv", rows(21, 47))
    formats.write("streams/c.csv", rows(1, 47))
    formats.write("streams/eval.csv", rows(60, 67))
    formats.write("streams/a.txt", table.concat(letters, "", 1, 61))
    formats.write("streams/b.txt", table.concat(letters, "", 62))
    formats.write("streams/a.bin", table.concat(tokens, "", 1, 97))
    formats.write("streams/b.bin", table.concat(tokens, "", 98))
    gzip(t, formats, "streams/b_part.csv")
    gzip(t, formats, "streams/c.csv")
    assert(host.remove(formats.programs.folder() .. "/data/streams/b_part.csv"))
end

local CSV = '"csv", train = "streams/%s", eval = "streams/eval.csv"'
local TEXT = '"text", train = "streams/*.txt", eval = "streams/a.txt", context = 5'
local TOKENS = '"tokens", train = "streams/*.bin", eval = "streams/b.bin", context = 4'

-- The log's updates and evaluations, without times.
local function figures(t, log)
    local list = {}
    for _, event in ipairs(t.load("tests/lua/json.lua").lines(host.read(log))) do
        if event.event == "update" then
            list[#list + 1] = ("cycle %d micro %d epoch %d loss %.9g norm %.9g weight %d rows %d"):format(event.cycle,
                event.micro, event.epoch, event.loss, event.grad_norm, event.weight, event.rows)
        elseif event.event == "eval" then
            list[#list + 1] = ("eval %d: %.9g of %d"):format(event.cycle, event.loss, event.rows)
        end
    end
    return list
end

-- A run's dump and figures.
local function run(t, programs, p, options)
    local log = t.temp() .. "/log"
    table.move({ "--log", log }, 1, 2, #options + 1, options)
    return programs.dump(p, options), figures(t, log)
end

-- The program with streamed rows, after a comparison with the one with rows in memory.
local function same(t, formats, name, text, cycles, how, options)
    local programs = formats.programs
    files(t, formats)
    local stream = programs.build("stream_" .. name, text:gsub(" }\n", ", stream = true }\n", 1), how)
    local memory = programs.build("memory_" .. name, text:gsub(" }\n", ", shuffle = false }\n", 1), how)
    local function run_of(p)
        local o = { "--cycles", cycles, ranks = options and options.ranks, env = options and options.env }
        return run(t, programs, p, o)
    end
    local dump, found = run_of(stream)
    local expected, known = run_of(memory)
    assert(table.concat(known, "\n"):find("eval %d+"), "no epoch has ended")
    t.equal(table.concat(found, "\n"), table.concat(known, "\n"))
    programs.identical(dump, expected, FILES)
    return stream
end

add("csv, one file gzipped, last rows padded, tails flushed: the same as from memory", function(t, formats)
    same(t, formats, "csv", spec(CSV:format("*_part.csv*") .. ', last = "pad"', '4, tail = "flush"', MLP, 3), 14)
end)

add("gzipped csv, tails dropped: the same as from memory", function(t, formats)
    same(t, formats, "gz", spec(CSV:format("c.csv.gz"), "3", MLP, 4), 12)
end)

add("text of two files, tails carried: the same as from memory", function(t, formats)
    same(t, formats, "text", spec(TEXT, '3, tail = "carry"', sequence(11, 6), 2), 13)
end)

add("tokens of two files, cycles of several lengths, tails consumed: the same as from memory", function(t, formats)
    same(t, formats, "tokens", spec(TOKENS, '1, later = { [3] = 4, [6] = 2 }, drain = "consume"', sequence(23, 6), 3,
        'precision  "f64"\n'), 16)
end)

-- Stops at each of the micro-steps and resumes: the bits must be those of the uninterrupted run.
local function stop_at(t, programs, p, cycles, first, last, options)
    local function with(list)
        list.ranks, list.env = options and options.ranks, options and options.env
        table.move({ "--cycles", cycles }, 1, 2, #list + 1, list)
        return list
    end
    local straight = programs.dump(p, with {})
    for k = first, last do
        local checkpoint = t.temp()
        local stop = with { "--stop-micro", k, "--checkpoint", checkpoint }
        stop.status = 75
        programs.train(p, stop)
        programs.identical(programs.dump(p, with { "--resume", "latest", "--checkpoint", checkpoint }), straight,
            FILES)
    end
end

-- 11 micro-batches of 4 rows an epoch, cycles of 4.
for _, tail in ipairs { "drop", "flush", "carry" } do
    add("stopped at every micro-step, tail " .. tail, function(t, formats)
        files(t, formats)
        local p = formats.programs.build("stream_stop_" .. tail, spec(CSV:format("c.csv.gz") .. ", stream = true",
            ("4, tail = %q"):format(tail), MLP, 4))
        stop_at(t, formats.programs, p, 7, 1, 20)
    end)
end

add("two ranks: the same as from memory, also when stopped inside cycles", function(t, formats)
    local p = same(t, formats, "ranks", spec(CSV:format("c.csv"), '2, tail = "carry"', MLP, 3,
        'parallel   "ddp"\n'), 12, { comm = "mpi" }, { ranks = 2 })
    stop_at(t, formats.programs, p, 9, 6, 9, { ranks = 2 })
end)

-- The device library reports missing waits. Compared with the C target, also when stopped.
add("the CUDA target equals the C target, also when stopped around a tail", function(t, formats)
    files(t, formats)
    local programs = formats.programs
    local _, environment = devices.open(t)
    local text = spec(TEXT .. ", stream = true", '4, tail = "flush", drain = "consume"', sequence(11, 6), 4,
        'precision  "f64"\n')
    local p = programs.build("stream_device", text .. 'target "cuda"\n')
    local device = { env = environment { "GAGEN_DEVICE_LAZY=1", "GAGEN_DEVICE_SEED=4" } }
    local start = t.temp() .. "/start.safetensors"
    local expected, known = run(t, programs, programs.build("stream_host", text), { "--cycles", 6, "--save-init", start })
    local found, said = run(t, programs, p, { "--cycles", 6, "--init", start, env = device.env })
    programs.close(found, expected, 1e-11, FILES)
    for i, line in ipairs(known) do
        t.equal(said[i]:match("^%a+ %d+"), line:match("^%a+ %d+"))
        t.equal(said[i]:match("micro %d+ epoch %d+"), line:match("micro %d+ epoch %d+"))
    end
    stop_at(t, programs, p, 6, 3, 9, device)
end)

-- Library of tests/faults: the calls of the system that `faults` names fail.
local function failing(t, faults, counts)
    return { "GAGEN_TIMEOUT=300", "LD_PRELOAD=" .. t.root .. "/" .. t.build
        .. "/tests/faults/faults.so", "GA_FAIL_AT=" .. (faults or ""), counts and "GA_FAIL_COUNTS=" .. counts or nil }
end

add("without a read-ahead thread: the same", function(t, formats)
    files(t, formats)
    local programs = formats.programs
    local p = programs.build("stream_stop_flush", spec(CSV:format("c.csv.gz") .. ", stream = true",
        '4, tail = "flush"', MLP, 4))
    local alone = programs.dump(p, { "--cycles", 8, "--threads", 1, env = failing(t, "thread:1+=EAGAIN") })
    programs.identical(alone, programs.dump(p, { "--cycles", 8 }), FILES)
end)

-- A folder for --data with other files of the same names.
local function other_data(t, texts)
    local folder = t.temp()
    t.write(folder .. "/streams/eval.csv", rows(60, 67))
    for name, text in next, texts do t.write(folder .. "/streams/" .. name, text) end
    return folder
end

local function one_file(t, formats)
    files(t, formats)
    return formats.programs.build("stream_one", spec(CSV:format("c.csv") .. ", stream = true", '3, tail = "flush"',
        MLP, 4))
end

add("files of another length are trained on", function(t, formats)
    local programs, p = formats.programs, one_file(t, formats)
    for _, last in ipairs { 200, 5 } do
        formats.write(("streams/of%d.csv"):format(last), rows(1, last))
        local memory = programs.build("memory_of" .. last, spec(CSV:format(("of%d.csv"):format(last)) ..
            ", shuffle = false", '3, tail = "flush"', MLP, 4))
        local folder = other_data(t, { ["c.csv"] = rows(1, last) })
        local found, said = run(t, programs, p, { "--cycles", 20, "--data", folder })
        local expected, known = run(t, programs, memory, { "--cycles", 20 })
        t.equal(table.concat(said, "\n"), table.concat(known, "\n"))
        programs.identical(found, expected, FILES)
    end
end)

-- A run whose file is faulty after `cycles` cycles of 12 rows: its message and its files.
local function faulty(t, formats, text, cycles, status, says, env)
    local programs, p = formats.programs, one_file(t, formats)
    local checkpoint, log = t.temp(), t.temp() .. "/log"
    local folder = text and other_data(t, { ["c.csv"] = text })
    local o = { "--cycles", 20, "--checkpoint", checkpoint, "--log", log, status = status, env = env }
    if folder then table.move({ "--data", folder }, 1, 2, #o + 1, o) end
    local result = programs.train(p, o)
    t.contains(result.err, says)
    local events = t.load("tests/lua/json.lua").lines(host.read(log))
    t.equal(events[#events].cycle, cycles)
    t.equal(events[#events].reason, "error")
    if cycles == 0 then return t.equal(#host.list(checkpoint), 1, "only the lock") end
    local saved = ("%s/cycle-%09d/model.safetensors"):format(checkpoint, cycles)
    local straight = programs.dump(p, { "--cycles", cycles })
    t.equal(programs.difference(saved, straight .. "/parameters.safetensors"), 0, "the last whole cycle is saved")
    return checkpoint
end

add("a faulty row ends training after the cycles before it", function(t, formats)
    faulty(t, formats, rows(1, 47, { 26, "1,2" }), 2, 1, "c.csv:26: 2 columns found, 3 expected\n")
    faulty(t, formats, rows(1, 47, { 24, "1,2,3" }), 1, 1,
        "c.csv:24: column 3: target 3, expected a whole number in 0..2\n")
    faulty(t, formats, rows(1, 47, { 3, "1,x,0" }), 0, 1, "c.csv:3: column 2: found 'x', expected")
end)

add("a stream too short for a cycle is refused with its numbers", function(t, formats)
    faulty(t, formats, rows(1, 3), 0, 1, "data: 3 training rows in micro-batches of 4 rows on each of 1 rank: an epoch "
        .. "has 0 micro-batches, a cycle needs 1")
    faulty(t, formats, "", 0, 1, "c.csv: no rows found, at least one expected")
end)

add("a truncated gzip file is refused", function(t, formats)
    files(t, formats)
    local programs = formats.programs
    local p = programs.build("stream_stop_flush", spec(CSV:format("c.csv.gz") .. ", stream = true",
        '4, tail = "flush"', MLP, 4))
    local whole = host.read(programs.folder() .. "/data/streams/c.csv.gz")
    local folder = other_data(t, { ["c.csv.gz"] = whole:sub(1, -6) })
    t.contains(programs.train(p, { "--data", folder, status = 1 }).err,
        "c.csv.gz: gzip data ends early: the file is cut off or empty\n")
end)

-- Every read of the file fails once: the program saves its state, and a resumed run continues from it.
add("a read that fails: status 3, and a checkpoint that can be resumed", function(t, formats)
    local programs, p, saved = formats.programs, one_file(t, formats), 0
    local straight = programs.dump(p, { "--cycles", 20 })
    local counts = t.temp() .. "/counts"
    local function forget_runs() t.run { "rm", "-rf", p.folder .. "/runs" } end     -- each start reads the runs before
    forget_runs()
    programs.train(p, { "--cycles", 20, env = failing(t, "", counts) })
    local reads = tonumber(host.read(counts):match("read (%d+)"))
    assert(reads > 10)
    for n = 1, reads do
        local checkpoint = t.temp()
        forget_runs()
        local result = programs.train(p, { "--cycles", 20, "--checkpoint", checkpoint, status = false,
            env = failing(t, ("read:%d=EIO"):format(n)) })
        if result.status == 3 and result.err:find("c.csv: cannot be read: Input/output error", 1, true)
            and #host.list(checkpoint) > 1 then
            programs.identical(programs.dump(p, { "--cycles", 20, "--resume", "latest", "--checkpoint", checkpoint }),
                straight, FILES)
            saved = saved + 1
        end
    end
    assert(saved >= 3, saved .. " checkpoints")
end)

add("a resumed run with a file that grew is refused", function(t, formats)
    local programs, p, checkpoint = formats.programs, one_file(t, formats), t.temp()
    programs.train(p, { "--cycles", 3, "--checkpoint", checkpoint })
    local folder = other_data(t, { ["c.csv"] = rows(1, 50) })
    t.match(programs.train(p, { "--cycles", 6, "--checkpoint", checkpoint, "--resume", "latest", "--data", folder,
        status = 1 }).err, "resume: streams/c.csv has %d+ bytes, checksum %x+; the checkpoint was made with")
end)

add("options that a stream does not support are refused", function(t, formats)
    files(t, formats)
    formats.write("streams/images", formats.idx({ 8, 2, 2 }, function(i) return i end))
    formats.write("streams/labels", formats.idx({ 8 }, function(i) return i % 3 end))
    local csv = CSV:format("c.csv") .. ", stream = true"
    local base = spec(csv, "3", MLP, 4)
    for _, case in ipairs {
        { base:gsub("updates = 60", "epochs = 2"),
            ":7: train: epochs: the length of a stream is not known, expected updates" },
        { spec(csv .. ", shuffle = true", "3", MLP, 4), ":1: data: shuffle needs all rows in memory" },
        { spec(csv .. ", split = { eval = 3 }", "3", MLP, 4), ":1: data: split needs the number of rows" },
        { spec('"csv", train = "streams/c.csv", stream = true', "3", MLP, 4), ":1: data: eval is missing: the rows "
            .. "of a stream pass by" },
        { spec('"idx", train = { "streams/images", "streams/labels" }, stream = true', "1", MLP, 4),
            ":1: data: stream: 'idx' is read as a whole, expected csv, text or tokens" },
        { base:gsub("accumulate { 3", "accumulate { 12"),
            ": batch: an epoch of 47 rows has 11 micro-batches of 4 rows x 1 rank, fewer than the 12" },
    } do
        local path = formats.programs.folder() .. "/stream_refused.lua"
        t.write(path, case[1])
        local result = formats.programs.gagen { "check", path }
        t.equal(result.status, 1, case[2])
        t.contains(result.err, case[2])
    end
    local path = formats.programs.folder() .. "/stream_allowed.lua"
    t.write(path, spec(csv .. ", shuffle = false", "3", MLP, 4))
    t.equal(formats.programs.gagen { "check", path }.status, 0)
end)

return tests
