-- `gagen export RUN --csv | --tensorboard`: the numbers of the log, read back by readers of the test's own, and by the
-- package tensorboard where python3 has it (tests/reference/tensorboard_files.py).
local fields = dofile "tests/lua/protobuf.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local START = 1795386600        -- 2026-11-22T22:30:00Z, as `date -u +%s` has it

local LOG = [[
{"event":"start","program":"p"}
{"event":"update","cycle":1,"update":1,"micro":4,"loss":2.3326588645577431,"lr":0.01,"grad_norm":"nan","ms":250}
{"event":"update","cycle":3,"update":2,"micro":12,"loss":1e-7,"lr":0.0099943366959150396,"grad_norm":"inf","ms":500}
{"event":"eval","cycle":3,"split":"eval","rows":360,"best":true,"loss":0.25,"accuracy":0.90833333333333333}
{"event":"checkpoint","cycle":3,"path":"a,b","ms":2}
{"event":"update","cycle":5,"update":3,"micro":20,"loss":-3,"lr":0.5,"grad_norm":"-inf","ms":0.5,"momentum":0.95}
]]

-- A run: its folder, and export(words...), which runs the command on it.
local function open(t, log)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.root .. "/" .. t.temp()
    local run = folder .. "/out/p/runs/001"
    t.write(run .. "/run.json", '{"run": "001", "started": "2026-11-22T22:30:00.5Z"}\n')
    t.write(run .. "/log.jsonl", log or LOG)
    local function export(...) return programs.gagen { "export", cwd = folder, ... } end
    return folder, export
end

local function done(t, result)
    t.equal({ result.status, (result.err:gsub("^wrote [^\n]*\n$", "")) }, { 0, "" })
    return result
end

-- -- a table ------------------------------------------------------------------------------------

local TABLE = [[
event,cycle,update,micro,loss,lr,grad_norm,ms,split,rows,best,accuracy,momentum
update,1,1,4,2.3326588645577431,0.01,nan,250,,,,,
update,3,2,12,1e-7,0.0099943366959150396,inf,500,,,,,
eval,3,,,0.25,,,,eval,360,true,0.90833333333333333,
update,5,3,20,-3,0.5,-inf,0.5,,,,,0.95
]]

add("csv: each update and evaluation with the digits of the log", function(t)
    local folder, export = open(t)
    t.equal(done(t, export("out/p/runs/001", "--csv")).out, TABLE)
    local result = export("out/p", "--csv", "made.csv")
    t.equal({ result.status, result.out, result.err }, { 0, "", "wrote made.csv\n" })
    t.equal(host.read(folder .. "/made.csv"), TABLE)
end)

add("csv: a torn last line does not count", function(t)
    local _, export = open(t, LOG .. '{"event":"update","cycle":6,"lo')
    t.equal(done(t, export("out/p/runs/001/", "--csv")).out, TABLE)
end)

-- -- TensorBoard --------------------------------------------------------------------------------

-- CRC-32C bit by bit; that of "123456789" is its known check value.
local function crc(text)
    local register = 0xffffffff
    for i = 1, #text do
        register = register ~ text:byte(i)
        for _ = 1, 8 do
            local odd = register % 2 == 1
            register = register // 2
            if odd then register = register ~ 0x82f63b78 end
        end
    end
    return register ~ 0xffffffff
end

local function masked(text)
    local sum = crc(text)
    return (sum >> 15 | sum << 17) + 0xa282ead8 & 0xffffffff
end

-- The messages of a file of records.
local function records(t, bytes)
    local list, at = {}, 1
    while at <= #bytes do
        local size, check = string.unpack("<I8I4", bytes, at)
        t.equal(check, masked(bytes:sub(at, at + 7)))
        local message = bytes:sub(at + 12, at + 11 + size)
        t.equal(#message, size)
        t.equal(string.unpack("<I4", bytes, at + 12 + size), masked(message))
        list[#list + 1], at = message, at + 16 + size
    end
    return list
end

-- { tag, step, seconds, value as %.9g } of each value.
local function curves(t, bytes)
    local list, messages = {}, records(t, bytes)
    local first = fields(messages[1])
    t.equal({ first[1][2], first[2] }, { START * 1.0, { 3, "brain.Event:2" } })
    for i = 2, #messages do
        local event = fields(messages[i])
        t.equal({ event[1][1], event[2][1], event[3][1], #event }, { 1, 2, 5, 3 })
        for _, value in ipairs(fields(event[3][2])) do
            local tag, number = table.unpack(fields(value[2]))
            t.equal({ value[1], tag[1], number[1] }, { 1, 1, 2 })
            local text = ("%.9g"):format(number[2]):gsub("^%-?nan$", "nan")
            list[#list + 1] = { tag[2], event[2][2], event[1][2], text }
        end
    end
    return list
end

-- The curves of LOG, rounded to f32; a cycle's time is that of the last one logged.
local function expected()
    local list, f32 = {}, function(x) return ("%.9g"):format((string.unpack("<f", string.pack("<f", x)))) end
    local function add_all(prefix, step, time, values)
        for _, v in ipairs(values) do
            list[#list + 1] = { prefix .. v[1], step, START + time, type(v[2]) == "string" and v[2] or f32(v[2]) }
        end
    end
    add_all("train/", 1, 0.25, { { "update", 1 }, { "micro", 4 }, { "loss", 2.3326588645577431 }, { "lr", 0.01 },
        { "grad_norm", "nan" }, { "ms", 250 } })
    add_all("train/", 3, 1.25, { { "update", 2 }, { "micro", 12 }, { "loss", 1e-7 }, { "lr", 0.0099943366959150396 },
        { "grad_norm", "inf" }, { "ms", 500 } })
    add_all("eval/", 3, 1.25, { { "rows", 360 }, { "loss", 0.25 }, { "accuracy", 0.90833333333333333 } })
    add_all("train/", 5, 1.251, { { "update", 3 }, { "micro", 20 }, { "loss", -3 }, { "lr", 0.5 },
        { "grad_norm", "-inf" }, { "ms", 0.5 }, { "momentum", 0.95 } })
    return list
end

local NAME = ("events.out.tfevents.%d.gagen"):format(START)

add("tensorboard: records with their checksums, the numbers of the log in f32", function(t)
    t.equal({ crc "123456789", ("%x"):format(masked "123456789") }, { 0xe3069283, "c78ab0e5" })
    local folder, export = open(t)
    t.equal(export("out/p", "--tensorboard", "board/p").err, "wrote board/p/" .. NAME .. "\n")
    t.equal(curves(t, host.read(folder .. "/board/p/" .. NAME)), expected())
    done(t, export("out/p/runs/001", "--tensorboard", "board/p"))
    t.equal(host.list(folder .. "/board/p"), { NAME })
end)

add("tensorboard: the package of that name reads the same", function(t)
    local folder, export = open(t)
    done(t, export("out/p", "--tensorboard", "board"))
    local result = t.run { "python3", t.root .. "/tests/reference/tensorboard_files.py", folder .. "/board" }
    if result.status == 5 or result.status == 127 then t.not_run(result.err) end
    t.equal(result.status, 0)
    local found, wanted = {}, {}
    for line in result.out:gmatch "[^\n]+" do found[#found + 1] = line end
    for i, v in ipairs(expected()) do wanted[i] = ("%s %d %.17g %s"):format(table.unpack(v)) end
    table.sort(found)
    table.sort(wanted)
    t.equal(found, wanted)
end)

-- -- refusals -----------------------------------------------------------------------------------

add("wrong words and logs are refused", function(t)
    local folder, export = open(t)
    local function refused(pattern, ...)
        local result = export(...)
        t.equal({ result.status, result.out }, { 1, "" })
        t.match(result.err, pattern)
    end
    refused("^export: no format, expected one of %-%-csv, ", "out/p")
    refused("^export: %-%-csv and %-%-tensorboard are given, ", "out/p", "--csv", "--tensorboard", "x")
    refused("unexpected word 'y': only %-%-csv takes a FILE", "out/p", "y", "--tensorboard", "x")
    refused("^out/q: no run: expected the folder of a run, ", "out/q", "--csv")
    refused("^nowhere: there is no such folder", "out/p", "--csv", "nowhere/x.csv")
    refused("log.jsonl: is a file that this command reads", "out/p", "--csv", "out/p/runs/001/log.jsonl")
    t.equal(host.list(folder), { "out" })
    local log = folder .. "/out/p/runs/001/log.jsonl"
    t.write(log, '{"event":"start"}\n')
    refused("log.jsonl: has no updates and no evaluations yet", "out/p", "--csv")
    t.write(log, '{"event":"start"}\nloss 3\n')
    refused("log.jsonl:2: the line is no event of a log, expected a JSON object", "out/p", "--csv")
    t.write(log, '{"event":"update","loss":3}\n')
    refused("log.jsonl:1: the line has no cycle, expected a JSON object", "out/p", "--csv")
    host.remove(log)
    refused("log.jsonl: there is no such log", "out/p", "--csv")
end)

return tests
