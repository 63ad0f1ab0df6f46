-- `gagen ls`: the runs of programs, from folders as programs leave them: while they run, after each kind of end, and
-- after a kill at any moment.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- A new folder: ls(words...) is gagen ls in it; run(path, facts, log) writes the folder of a run.
local function open(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.root .. "/" .. t.temp()
    local function ls(...)
        return programs.gagen { "ls", cwd = folder, env = { "TZ=AAA-3" }, ... }
    end
    local function run(path, facts, log)
        local into = folder .. "/out/" .. path
        t.write(into .. "/.lock", "")
        if facts then t.write(into .. "/run.json", facts) end
        if log then t.write(into .. "/log.jsonl", log) end
        return into
    end
    return folder, ls, run
end

local function listed(t, ls, ...)
    local result = ls("--json", ...)
    t.equal({ result.status, result.err }, { 0, "" })
    return t.load("tests/lua/json.lua").read(result.out)
end

-- The field `name` of each run.
local function column(list, name)
    local values = {}
    for i, run in ipairs(list) do values[i] = run[name] or "none" end
    return values
end

local function facts(run, started, more)
    return ('{"run": "%s", "program": "p", "started": "%s", "host": "h", "pid": 7, "command": ["train"], "seed": 1, '
        .. '"spec_sha256": "0"%s}\n'):format(run, started, more or "")
end

local LOG = '{"event":"start","program":"p"}\n{"event":"update","cycle":1,"update":1,"loss":2.5}\n'
    .. '{"event":"eval","cycle":1,"split":"eval","rows":9,"loss":0.25}\n{"event":"update","cycle":3,"update":2,'
    .. '"skipped":1}\n{"event": "eval", "cycle": 3, "split": "eval", "rows": 9, "loss": 0.51234}\n'

add("a table with a line for each run, in local time", function(t)
    local _, ls, run = open(t)
    run("p/runs/001", facts("001", "2026-11-22T22:30:00Z", ', "end": {"reason": "done", "cycle": 9, "update": 8}'), LOG)
    run("p/runs/002", facts("002", "2026-11-23T00:00:00Z", ', "differs": ["seed: 1 -> 9", "--threads 2"]'), LOG)
    local result = ls()
    t.equal({ result.status, result.err }, { 0, "" })
    local size = t.match(result.out, "  ([%d.]+ %a+)  %-\n")
    local expected = ([[
program  run  when              state   updates  loss    best  size%s  differs
p        001  2026-11-23 01:30  done    8        0.5123  0.25  SIZE  -
p        002  2026-11-23 03:00  failed  2        0.5123  0.25  SIZE  seed: 1 -> 9, --threads 2
]]):format((" "):rep(#size - 4)):gsub("SIZE", size)
    t.equal(result.out, expected)
end)

add("the metrics of the last evaluation, beside its loss", function(t)
    local _, ls, run = open(t)
    run("p/runs/001", facts("001", "2026-11-22T22:30:00Z"), LOG .. '{"event":"eval","cycle":4,"split":"eval","rows":9,'
        .. '"loss":0.5,"margin":"nan","accuracy":0.96944}\n')
    run("p/runs/002", facts("002", "2026-11-23T00:00:00Z"), LOG)
    local list = listed(t, ls)
    t.equal({ list[1].metrics, list[2].metrics or "none" }, { { accuracy = 0.96944, margin = "nan" }, "none" })
    t.match(ls().out, "\np +001 .* 0%.5 +0%.25 +accuracy 0%.9694, margin nan +[%d.]+ %a+ +%-\n"
        .. "p +002 .* 0%.5123 +0%.25 +%- +[%d.]+ %a+ +%-\n")
end)

add("times are those of date", function(t)
    local _, ls, run = open(t)
    local times = { "1970-01-01T00:00:00Z", "2024-02-28T23:59:59Z", "2024-02-29T12:00:00Z", "2024-03-01T00:00:00Z",
        "2026-12-31T23:00:00Z", "2027-01-01T00:00:00Z", "2100-02-28T21:00:00Z" }
    for i, time in ipairs(times) do run(("p/runs/%03d"):format(i), facts("x", time)) end
    local text = ls().out
    for i, time in ipairs(times) do
        local expected = t.run { "date", "-d", time, "+%Y-%m-%d %H:%M", env = { "TZ=AAA-3" } }.out
        t.equal(t.match(text, ("\np +%03d +(%%S+ %%S+)"):format(i)) .. "\n", expected)
    end
end)

add("a run is running while its lock is held; then its end says the rest", function(t)
    local _, ls, run = open(t)
    for i, reason in ipairs { "done", "signal", "patience", "nonfinite", "error", "unheard" } do
        run("p/runs/00" .. i, facts("00" .. i, "2026-11-22T18:30:0" .. i .. "Z",
            (', "end": {"reason": "%s", "update": 5}'):format(reason)))
    end
    run("p/runs/007", facts("007", "2026-11-22T18:30:07Z"), LOG)
    local into = run("p/runs/008", facts("008", "2026-11-22T18:30:08Z"), LOG)
    local lock = assert(host.lock(into .. "/.lock"))
    t.equal(lock:take "alone", true)
    local list = listed(t, ls)
    t.equal(column(list, "state"), { "done", "stopped", "stopped", "failed", "failed", "failed", "failed", "running" })
    t.equal(column(list, "reason"), { "done", "signal", "patience", "nonfinite", "error", "unheard", "none", "none" })
    t.equal(column(list, "updates"), { 5, 5, 5, 5, 5, 5, 2, 2 })
    t.contains(ls().out, "  stopped (patience)  5 ")
    lock:close()
    t.equal(column(listed(t, ls), "state")[8], "failed")
end)

add("a killed run is read as far as its files are whole", function(t)
    local folder, ls, run = open(t)
    local whole = facts("x", "2026-11-22T18:30:00Z", ', "end": {"reason": "done"}')
    for cut = 0, #whole - 2, 7 do run(("p/runs/json%03d"):format(cut), whole:sub(1, cut)) end
    for _, run_of in ipairs(listed(t, ls)) do t.equal(run_of.state, "failed") end
    t.equal(t.run { "rm", "-r", folder .. "/out" }.status, 0)
    for cut = 0, #LOG do run(("p/runs/log%03d"):format(cut), whole, LOG:sub(1, cut)) end
    for cut, found in ipairs(listed(t, ls)) do
        local lines = select(2, LOG:sub(1, cut - 1):gsub("\n", ""))
        t.equal({ found.updates or 0, found.last_loss or 0, found.best_loss or 0 }, ({ [0] = { 0, 0, 0 }, { 0, 0, 0 },
            { 1, 0, 0 }, { 1, 0.25, 0.25 }, { 2, 0.25, 0.25 }, { 2, 0.51234, 0.25 } })[lines], cut)
    end
    t.equal(t.run { "rm", "-r", folder .. "/out" }.status, 0)
    run("p/runs/2", "[1, 2]", '{"event":"eval","loss":"nan"}\n{"event":"update","upd{"event":"eval","loss":1}\n')
    run("p/runs/3", '{"started": 3, "differs": {"a": 1}, "end": [], "run": null}', '{"event":"eval","loss":[1]}\n\n\0x\n')
    assert(host.folder(folder .. "/out/p/runs/10/run.json"))
    assert(host.folder(folder .. "/out/p/runs/10/log.jsonl"))
    t.equal(t.run { "mkfifo", folder .. "/out/p/runs/3/.fifo", folder .. "/out/p/runs/11" }.status, 0)
    assert(host.folder(folder .. "/out/p/runs/12"))
    t.equal(t.run { "mkfifo", folder .. "/out/p/runs/12/log.jsonl", folder .. "/out/p/runs/12/.lock" }.status, 0)
    local list = listed(t, ls)
    t.equal(column(list, "run"), { "2", "3", "10", "12" })
    t.equal(column(list, "last_loss"), { "nan", "none", "none", "none" })
    t.equal(column(list, "best_loss"), { "none", "none", "none", "none" })
    t.match(ls().out, "\np +2 +%- +failed +%- +nan +%- ")
end)

add("SPEC names the programs; links, files and other folders are none", function(t)
    local folder, ls, run = open(t)
    for _, path in ipairs { "mlp/runs/b", "mlp/runs/a", "mlp--batch=4/runs/001", "mlp_more/runs/001", "q/runs/001" } do
        run(path, facts("x", path == "mlp/runs/b" and "2026-01-01T00:00:00Z" or "2026-01-02T00:00:00Z"))
    end
    assert(host.link("b", folder .. "/out/mlp/runs/latest"))
    t.write(folder .. "/out/mlp/runs/file", "")
    t.write(folder .. "/out/mlp/main.c", "")
    t.write(folder .. "/out/runs", "")
    assert(host.folder(folder .. "/out/empty/runs"))
    local function folders(...)
        return column(listed(t, ls, ...), "folder")
    end
    local own = { "out/mlp/runs/b", "out/mlp/runs/a", "out/mlp--batch=4/runs/001" }
    t.equal(folders(), { own[1], own[2], own[3], "out/mlp_more/runs/001", "out/q/runs/001" })
    t.write(folder .. "/mlp.lua", "batch (0)\n")               -- only the name of a spec matters here
    t.equal(folders "mlp.lua", own)
    t.write(folder .. "/other.lua", 'name "mlp"\n')
    t.equal(folders "other.lua", own)
    t.write(folder .. "/none.lua", "batch (4)\n")
    local result = ls "none.lua"
    t.equal({ result.status, result.out }, { 0, "no runs of none below out: gagen run starts one\n" })
    t.equal(folders "none.lua", {})
    t.equal(ls("absent.lua").status, 1)
    t.write(folder .. "/broken.lua", 'name "P"\n')
    result = ls "broken.lua"
    t.equal(result.status, 1)
    t.contains(result.err, "broken.lua:1: name: 'P': small letters, digits and _ expected")
    t.equal(t.run { "rm", "-r", folder .. "/out" }.status, 0)
    t.equal(ls().out, "no runs below out: gagen run starts one\n")
end)

add("the size of a run is that of du, links not followed", function(t)
    local folder, ls, run = open(t)
    local into = run("p/runs/001", facts("x", "2026-01-01T00:00:00Z"), LOG)
    t.write(into .. "/checkpoints/cycle-000000001/model.safetensors", ("x"):rep(100000))
    t.write(folder .. "/big", ("x"):rep(1000000))
    assert(host.link("../../../../big", into .. "/link"))
    local bytes = listed(t, ls)[1].bytes
    t.equal(bytes, math.tointeger(tonumber(t.run { "du", "-s", "-B1", into }.out:match "%d+")))
    assert(bytes >= 100000 and bytes < 1000000, bytes)
    local size, message = host.disk_size(folder .. "/none")
    t.equal(size, nil)
    t.contains(message, "/none: No such file")
end)

add("signs that control a terminal are written as numbers", function(t)
    local _, ls, run = open(t)
    run("p/runs/\27[31m", facts("x", "2026-01-01T00:00:00Z", ', "differs": ["a\\u001b]0;x", "\\u00e9"]'))
    local text = ls().out
    t.equal(text:find "\27", nil)
    t.contains(text, "\\x1b[31m")
    t.contains(text, "a\\x1b]0;x, \u{e9}\n")
end)

return tests
