-- `gagen plot` and `gagen compare`: logs as runs leave them, also cut in the middle of a line, of another version, with
-- values that are not finite and with resumes; the numbers that they show are those of the log.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local START = '{"event":"start","program":"p","version":"%s","spec_sha256":"%s","parameters":10,"planned_bytes":4096,'
    .. '"seed":1%s}\n'

-- Lines of updates first..last, with loss(cycle) as text or number; rows of each: 16 unless given.
local function updates(first, last, loss, rows)
    local lines = {}
    for cycle = first, last do
        local value = loss(cycle)
        lines[#lines + 1] = ('{"event":"update","cycle":%d,"update":%d,"rows":%d,"loss":%s,"lr":0.01,"skipped":0,'
            .. '"weight":%d,"ms":2,"rows_per_s":%d}\n'):format(cycle, cycle, rows or 16,
            type(value) == "string" and '"' .. value .. '"' or ("%.17g"):format(value), rows or 16, 8000 + cycle)
    end
    return table.concat(lines)
end

local function start(version, more) return START:format(version or host.version, "ab", more or "") end

local END = '{"event":"end","cycle":9,"update":9,"skipped":0,"reason":"done","seconds":1,"peak_rss_bytes":8192}\n'

local function falling(cycle) return 4 / cycle end

-- gagen in a new folder, and a function that writes a log there.
local function open(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.root .. "/" .. t.temp()
    local function gagen(...) return programs.gagen { cwd = folder, ... } end
    return gagen, function(name, text) t.write(folder .. "/" .. name, text) end, folder
end

local function length(text) return utf8.len(text) or #text end

-- The columns of the picture of one run in text that went into a pipe: for each the rows of its signs, from the top; and
-- the number of rows.
local function columns_of(text)
    local found, row = {}, 0
    for line in text:gmatch "[^\n]+" do
        local signs = line:match "^ *[%w.-]*|(.*)$"
        if signs then
            row = row + 1
            for at = 1, #signs do
                if signs:sub(at, at) ~= " " then
                    found[at] = found[at] or {}
                    table.insert(found[at], row)
                end
            end
        end
    end
    return found, row
end

add("into a pipe: 80 columns, no colours, each point in its place", function(t)
    local gagen, write = open(t)
    write("log.jsonl", start() .. updates(1, 60, function(cycle) return cycle % 2 == 0 and 1 or 3 end) .. END)
    local result = gagen("plot", "log.jsonl")
    t.equal({ result.status, result.err }, { 0, "" })
    for line in result.out:gmatch "[^\n]+" do assert(length(line) <= 80, line) end
    assert(not result.out:find "[\27\128-\255]", "signs of a terminal")
    local columns, rows = columns_of(result.out)
    local width = #result.out:match "%+(%-+)\n"
    for i = 1, 60 do
        local at = math.floor((i - 1) / 59 * (width - 1) + 0.5) + 1
        local wanted = i % 2 == 0 and rows or 1
        local seen = false
        for _, row in ipairs(columns[at] or {}) do seen = seen or row == wanted end
        assert(seen, ("update %d is not in row %d of column %d"):format(i, wanted, at))
    end
    t.contains(result.out, "3 at 1 to 1 at 60, least 1 at 2, greatest 3 at 1\n")
end)

add("the numbers of the log at 20, 80 and 200 columns of a terminal", function(t)
    local _, write, folder = open(t)
    local terminal = t.load "tests/lua/terminal.lua"
    write("p/runs/001/log.jsonl", start() .. updates(1, 400, falling))
    for _, width in ipairs { 20, 80, 200 } do
        for _, env in ipairs { { "TERM=xterm", "LC_ALL=C.UTF-8" }, { "TERM=dumb", "LC_ALL=C" } } do
            local out, status = terminal(t, ("%s/%s plot %s/p/runs/001"):format(t.root, t.gagen, folder), width, env)
            t.equal(status, 0, out)
            local plain = out:gsub("\27%[%d*m", "")
            for line in plain:gmatch "[^\r\n]+" do assert(length(line) <= width, line) end
            local words = plain:gsub("%s+", " ")
            t.contains(words, "p/001: 4 at 1 to 0.01 at 400, least 0.01 at 400, greatest 4 at 1")
            t.equal(out:find "\27" ~= nil, env[1] == "TERM=xterm")
            t.equal(out:find "\xe2[\xa0-\xa3]" ~= nil, env[1] == "TERM=xterm")
        end
    end
end)

add("several runs, metrics of evaluations, rows, a logarithmic axis", function(t)
    local gagen, write = open(t)
    local eval = '{"event":"eval","cycle":%d,"split":"eval","rows":9,"loss":%g,"accuracy":%g}\n'
    write("a/log.jsonl", start() .. updates(1, 4, falling) .. eval:format(4, 0.5, 0.25) .. updates(5, 8, falling)
        .. eval:format(8, 0.4, 0.75))
    write("b/log.jsonl", start() .. updates(1, 8, falling, 32))
    local out = gagen("plot", "a", "b").out
    t.match(out, "\n%* a: 4 at 1 to 0%.5 at 8")
    t.match(out, "\no b: 4 at 1 to 0%.5 at 8")
    out = gagen("plot", "a", "b", "--metric", "accuracy").out
    t.match(out, "^Evaluation: accuracy by update\n")
    t.match(out, "\n%* a: 0%.25 at 4 to 0%.75 at 8")
    assert(not out:find "\no b")
    t.equal(gagen("plot", "a", "--metric", "eval.loss").status, 0)
    out = gagen("plot", "a", "b", "--by", "rows", "--scale", "log").out
    t.match(out, "^Loss by rows, logarithmic\n")
    t.match(out, "\n[ |*o]+\n.* 250\n")            -- 8 updates of 32 rows
    for _, case in ipairs {
        { "no run has 'accurcy'\ndid you mean 'accuracy'?", "--metric", "accurcy" },
        { "the runs have: loss, lr, rows_per_s, ms", "--metric", "x" },
        { "--scale: 'lin', expected linear or log", "--scale", "lin" },
        { "no value of 'skipped' can be drawn: none is finite and above 0", "--metric", "skipped", "--scale", "log" },
    } do
        local result = gagen("plot", "a", table.unpack(case, 2))
        t.equal({ result.status, result.out }, { 1, "" })
        t.contains(result.err, case[1])
    end
end)

add("a log cut at any byte is drawn as far as it goes, or refused", function(t)
    local log = require "report.log"
    local whole = start() .. updates(1, 3, falling) .. '{"event":"eval","cycle":3,"split":"eval","rows":9,"loss":1}\n' .. END
    local path = t.temp() .. "/log.jsonl"
    for cut = 0, #whole do
        t.write(path, whole:sub(1, cut))
        local lines = select(2, whole:sub(1, cut):gsub("\n", ""))
        -- a line that lacks its newline alone is whole
        local open_line = cut > 0 and whole:sub(cut, cut) ~= "\n"
        local complete = open_line and whole:sub(cut + 1, cut + 1) == "\n"
        local events = lines + (complete and 1 or 0)
        local done, list = pcall(log.read, path)
        t.equal(done, events > 0, cut)
        if done then
            t.equal(#list[1].cycles, math.min(math.max(events - 1, 0), 3), cut)
            t.equal(list[1].notes, open_line and not complete
                and { ("line %d ends in its middle: left out"):format(lines + 1) } or {}, cut)
        end
    end
end)

add("other logs: drawn, or refused with a sentence", function(t)
    local gagen, write, folder = open(t)
    local function plot(text, ...)
        write("log.jsonl", text)
        return gagen("plot", "log.jsonl", ...)
    end
    local function drawn(text, said, shown)
        local result = plot(text)
        t.equal(result.status, 0, result.err)
        t.contains(result.err, said)
        t.contains(result.out, shown)
    end
    local function refused(text, said)
        local result = plot(text)
        t.equal({ result.status, result.out }, { 1, "" })
        t.contains(result.err, said)
    end
    local four = updates(1, 4, falling)
    drawn(start "9.1" .. '{"event":"novel","x":[1]}\n' .. four, "written by version 9.1 of gagen", "4 at 1 to 1 at 4")
    drawn(start() .. four .. "\0\0{\n[1]\n" .. updates(5, 5, falling), "line 6 is no event of a log: left out and 1 more",
        "to 0.8 at 5")
    drawn(start() .. four .. updates(3, 3, falling), "line 6 has a cycle that is not behind the one before", "to 1 at 4")
    drawn(start() .. four .. '{"event":"update","loss":1}\n', "line 6 has no cycle", "to 1 at 4")
    drawn(start() .. updates(1, 9, function(i) return i % 3 == 0 and "nan" or i == 4 and "-inf" or i end), "",
        "1 at 1 to 8 at 8, least 1 at 1, greatest 8 at 8, 4 not finite")
    t.match(plot(start() .. updates(1, 9, function(i) return i == 5 and "nan" or i end)).out, "%+%-+!%-+\n.*!  not finite\n")
    refused(start() .. updates(1, 3, function() return "nan" end), "no value of 'loss' can be drawn: none is finite")
    refused("", "the log is empty")
    refused("\n \n", "the log is empty")
    refused("P6 100 100\n", "no line is an event")
    refused(start(), "no run has an update or an evaluation yet")
    refused(start() .. '{"event":"update","cycle":1,"loss":[1]}\n', "no value of 'loss'")
    for path, said in next, { ["none"] = "there is no such run", ["empty"] = "the folder has no log.jsonl" } do
        assert(host.folder(folder .. "/empty"))
        local result = gagen("plot", path)
        t.equal(result.status, 1)
        t.contains(result.err, said)
    end
    write("p/runs/001/run.json", "{}")
    t.contains(gagen("plot", "p").err, "the program has no run with a log yet")
    write("p/runs/002/log.jsonl", start() .. four)
    write("p/log.jsonl", start() .. updates(1, 9, falling) .. start() .. four)
    t.contains(gagen("plot", "p").out, "p/002: 4 at 1", "a log of the program's folder itself counts only without runs")
end)

add("resumes: later events of the run before count no more, and are marked", function(t)
    local log, path = require "report.log", t.temp() .. "/log.jsonl"
    local resumed = start(nil, ',"resumed_from":"x/cycle-000000003"')
    t.write(path, start() .. updates(1, 6, falling) .. '{"event":"checkpoint","cycle":5,"path":"c"}\n'
        .. '{"event":"eval","cycle":6,"split":"eval","rows":9,"loss":1}\n' .. resumed .. updates(4, 8, function() return 7 end))
    local list = log.read(path)
    t.equal(#list, 1)
    local run = list[1]
    t.equal(run.cycles, { 1, 2, 3, 4, 5, 6, 7, 8 })
    t.equal(run.rows, { 16, 32, 48, 64, 80, 96, 112, 128 })
    t.equal({ run.columns.loss[3], run.columns.loss[4], #run.evals, #run.checkpoints }, { 4 / 3, 7.0, 0, 0 })
    t.equal(run.resumes, { { cycle = 3, from = "x/cycle-000000003" } })
    -- two fresh starts are two runs; one that goes on from a run elsewhere begins behind its rows
    t.write(path, start() .. updates(1, 2, falling) .. start() .. updates(1, 3, falling))
    list = log.read(path)
    t.equal({ #list, #list[1].cycles, #list[2].cycles }, { 2, 2, 3 })
    t.write(path, resumed .. updates(4, 5, falling))
    t.equal(log.read(path)[1].rows, { 64, 80 })
    local gagen, write = open(t)
    write("log.jsonl", start() .. updates(1, 6, falling) .. resumed .. updates(4, 8, falling))
    t.match(gagen("plot", "log.jsonl").out, "%+%-+r%-+\n.*\nr  resumed\n")
end)

add("a skipped update and a line for each N-th one", function(t)
    local log, path = require "report.log", t.temp() .. "/log.jsonl"
    t.write(path, start() .. '{"event":"update","cycle":10,"rows":4,"loss":1,"skipped":0}\n'
        .. '{"event":"update","cycle":20,"rows":4,"loss":"inf","skipped":2}\n')
    local run = log.read(path)[1]
    t.equal(run.rows, { 40, 80 })
    t.equal(run.skips, { { cycle = 20 } })
    t.equal(run.columns.loss, { 1.0, math.huge })
end)

add("an axis over the least and the largest numbers has a few ticks, and places for all between", function(t)
    local axis = require "report.axis"
    local LARGEST, LEAST = 0x1.fffffffffffffp+1023, 0x1p-1074
    for _, span in ipairs { { LEAST, LEAST }, { 0, LEAST }, { 0, LARGEST }, { LARGEST, LARGEST }, { -LARGEST, LARGEST },
        { -LARGEST, -LARGEST }, { LEAST, LARGEST }, { 1e-310, 1e-309 }, { 1, 2 } } do
        for _, scale in ipairs { "linear", "log" } do
            local low, high = span[1], span[2]
            local one, what = axis.new(low, high, 5, scale), ("%g %g %s"):format(low, high, scale)
            assert(#one.ticks >= 1 and #one.ticks <= 12, what)
            for _, value in ipairs(table.move(one.ticks, 1, #one.ticks, 3, { low, high })) do
                local place = one.at(value)
                assert(place >= -1e-6 and place <= 1 + 1e-6, what)
            end
        end
    end
end)

add("a curve in parts: least, mean and greatest of each, none is lost", function(t)
    local series = require "report.series"
    local points = { cycles = {}, rows = {}, values = {} }
    for i = 1, 1000 do
        points.cycles[i], points.rows[i] = 2 * i, 20 * i
        points.values[i] = i == 500 and 0 / 0 or math.sin(i * 12.9898) * 43758.5453 % 1
    end
    for _, count in ipairs { 1, 7, 120, 999 } do
        local bins, seen, bad, least = series.thinned(points, count), 0, 0, math.huge
        assert(#bins <= count)
        for i, bin in ipairs(bins) do
            assert(not bin.least or bin.least <= bin.mean and bin.mean <= bin.most)
            least, bad = math.min(least, bin.least or least), bad + bin.bad
            assert(i == 1 or bins[i - 1].cycle < bin.cycle)
            t.equal(bin.rows, 10 * bin.cycle)
            seen = seen + 1
        end
        t.equal({ bad, least }, { 1, series.summary(points).least })
    end
    t.equal(#series.thinned(points, 1000), 1000)
    t.equal(series.thinned(points, 1000)[7].mean, points.values[7])
end)

add("the picture as SVG: well-formed, all curves, marks of events", function(t)
    local gagen, write, folder = open(t)
    local function rough(cycle) return cycle == 40 and "nan" or 3 / cycle + cycle * 7919 % 97 / 500 end
    write("a/log.jsonl", start() .. updates(1, 3000, rough) .. '{"event":"checkpoint","cycle":900,"path":"c"}\n')
    write("b/log.jsonl", start() .. updates(1, 1000, falling)
        .. '{"event":"eval","cycle":1000,"split":"eval","rows":9,"loss":0.5}\n')
    local result = gagen("plot", "a", "b", "--svg", "picture.svg", "--scale", "log")
    t.equal({ result.status, result.out, result.err }, { 0, "", "wrote picture.svg\n" })
    local page = t.load "tests/lua/markup.lua".read(host.read(folder .. "/picture.svg"))
    local function count(kind) return #page:all(function(e) return e.attributes.class == kind end) end
    t.equal({ count "curve", count "curve evaluation", count "band", count "bad", count "saved" }, { 2, 1, 2, 1, 1 })
    t.contains(page:text(), "Loss by update, logarithmic")
    t.match(gagen("plot", "a", "--svg", "none/picture.svg").err, "^none: there is no such folder")
    t.match(gagen("plot", "a", "--svg", "a/log.jsonl").err, "^a/log.jsonl: is there already and no picture")
end)

add("the examples of the commands for runs", function(t)
    local gagen, write = open(t)
    for _, run in ipairs { "001", "002" } do
        write(("out/digits_mlp/runs/%s/log.jsonl"):format(run), start() .. updates(1, 3, falling)
            .. '{"event":"eval","cycle":3,"split":"eval","rows":9,"loss":1,"accuracy":0.5}\n')
    end
    for _, command in ipairs(require "command.commands".list) do
        if command.arguments[1] and command.arguments[1]:find "^RUN" and command.name ~= "export" then
            local words = {}
            for word in command.example:gsub("^gagen ", ""):gmatch "%S+" do words[#words + 1] = word end
            local result = gagen(table.unpack(words))
            t.equal(result.status, 0, result.err)
        end
    end
end)

-- -- compare --------------------------------------------------------------------------------------

add("compare: equal runs, runs that differ, and --tol", function(t)
    local gagen, write = open(t)
    local json = t.load "tests/lua/json.lua"
    local function changed(cycle) return cycle < 6 and 4 / cycle or 4 / cycle * (1 + 1e-3 * (cycle - 5)) end
    write("a/log.jsonl", start() .. updates(1, 9, falling) .. END)
    write("b/log.jsonl", start() .. updates(1, 9, changed) .. END)
    local result = gagen("compare", "a", "a", "--tol", "0")
    t.equal({ result.status, result.err }, { 0, "" })
    t.match(result.out, "\nspec +equal\n.*\nloss +equal at 9 places of equal rows\n.*\nmemory +4%.0 KiB planned, the same\n"
        .. " +8%.0 KiB used at most, the same\nresult +equal: largest difference 0, %-%-tol 0\n")
    result = gagen("compare", "a", "b")
    t.equal(result.status, 0)
    t.match(result.out, "\nloss +0%.004 at most at 9 places of equal rows, update 9: 0%.4444 %-> 0%.4462, first at update 6\n")
    t.equal(gagen("compare", "a", "b", "--tol", "1e-2").status, 0)
    result = gagen("compare", "a", "b", "--tol", "2.5e-3")
    t.equal(result.status, 1)
    t.match(result.out, "first above 0%.0025 at update 8\n.*\nresult +different: largest difference 0%.004, %-%-tol 0%.0025\n")
    local facts = json.read(gagen("compare", "a", "b", "--tol", "2.5e-3", "--json").out)
    t.equal({ facts.equal, facts.figures.loss.count, facts.figures.loss.first.cycle_a }, { false, 9, 8 })
    t.near(facts.figures.largest, 1 - 1 / 1.004, 1e-12)
    write("c/log.jsonl", start() .. updates(1, 9, function(i) return i == 4 and "nan" or 4 / i end) .. END)
    t.equal(gagen("compare", "c", "c", "--tol", "0").status, 0)
    t.equal(gagen("compare", "a", "c", "--tol", "1e9").status, 1)
    for _, tol in ipairs { "x", "-1", "nan", "inf" } do
        t.contains(gagen("compare", "a", "b", "--tol", tol).err, "expected a number from 0 on")
    end
end)

add("compare: updates of other sizes meet at equal rows, by the mean in between", function(t)
    local gagen, write = open(t)
    write("a/log.jsonl", start() .. updates(1, 12, function(i) return 10.0 + i end, 16))
    write("b/log.jsonl", start() .. updates(1, 4, function(i) return 10 + 3 * i - 1 end, 48))
    local result = gagen("compare", "a", "b", "--tol", "1e-12")
    t.equal(result.status, 0, result.out)
    t.match(result.out, "\nloss +equal at 4 places of equal rows\n")
    write("c/log.jsonl", start() .. updates(1, 3, falling, 7))
    result = gagen("compare", "a", "c", "--tol", "1")
    t.equal(result.status, 1)
    t.contains(result.out, "nothing to compare: no loss at equal rows")
end)

add("compare: lines of the specs and settings that differ", function(t)
    local gagen, write, folder = open(t)
    for i, name in ipairs { "a", "b" } do
        write(name .. "/log.jsonl", START:format(host.version, name, "") .. updates(1, 2, falling))
        write(name .. "/spec.lua", ("batch (%d)\nmodel { linear { 3 } }\n"):format(8 * i))
        write(name .. "/run.json", ('{"settings": {"seed": "%d", "program": "gagen x"}}'):format(i))
    end
    local out = gagen("compare", "a", "b").out
    t.match(out, "\nspec +2 lines differ\n +%- batch %(8%)\n +%+ batch %(16%)\nsetting +seed: 1 %-> 2\n")
    t.write(folder .. "/two.jsonl", start() .. updates(1, 2, falling) .. start() .. updates(1, 2, falling))
    local result = gagen("compare", "two.jsonl", "a")
    t.equal(result.status, 1)
    t.contains(result.err, "the log holds 2 runs, expected one")
end)

return tests
