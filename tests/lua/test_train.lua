-- Training as a user sees it: the digits reach their accuracy, parameters change only at the boundary.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local FOLDS, LEAST = 5, 0.97

local function digits(t, programs, fold)
    local text, count = host.read(t.root .. "/specs/digits_mlp.lua"):gsub("fold = 1", "fold = " .. fold)
    t.equal(count, 1)
    return programs.build("digits_fold" .. fold, text, { level = fold == 1 and "-O3" or "-O1" })
end

local function of_kind(events, kind)
    local list = {}
    for _, event in ipairs(events) do
        if event.event == kind then list[#list + 1] = event end
    end
    return list
end

local function mean(events, first, last, field)
    local sum = 0
    for i = first, last do sum = sum + events[i][field] end
    return sum / (last - first + 1)
end

add("digits: the mean accuracy over five folds", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local sum, shown = 0, {}
    for fold = 1, FOLDS do
        local events = programs.events(digits(t, programs, fold), { "--threads", 1 })
        local updates, evals = of_kind(events, "update"), of_kind(events, "eval")
        local per_epoch = #updates // 30
        t.equal(#updates, 30 * per_epoch)
        t.equal(#evals, 30)
        local before, after = mean(updates, 1, per_epoch, "loss"),
            mean(updates, #updates - per_epoch + 1, #updates, "loss")
        assert(after < before / 10, ("fold %d: loss %.4f in the first epoch, %.4f in the last"):format(
            fold, before, after))
        t.equal(events[#events].reason, "done")
        -- no row is in two folds: 1797 = 360 + 360 + 359 + 359 + 359
        t.equal(evals[30].rows, fold <= 2 and 360 or 359)
        sum = sum + evals[30].accuracy
        shown[fold] = ("%.4f"):format(evals[30].accuracy)
    end
    assert(sum / FOLDS >= LEAST, ("mean accuracy %.4f of %s, at least %.3f expected"):format(
        sum / FOLDS, table.concat(shown, " "), LEAST))
end)

add("an evaluation prints the requested figures", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local text = host.read("specs/digits_mlp.lua"):gsub('{ "loss", "accuracy" }', '{ "accuracy" }')
    local p = programs.build("digits_accuracy", text)
    local eval = of_kind(programs.events(p, { "--cycles", 22 }), "eval")[1]
    t.equal(eval.loss, nil)
    local both = of_kind(programs.events(digits(t, programs, 1), { "--cycles", 22 }), "eval")[1]
    t.equal(eval.accuracy, both.accuracy)
    t.equal(type(both.loss), "number")
end)

add("digits: the same figures every time", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = digits(t, programs, 1)
    programs.identical(programs.dump(p, { "--cycles", 30 }), programs.dump(p, { "--cycles", 30 }))
    local other = programs.dump(p, { "--cycles", 30, "--seed", 2 })
    assert(programs.difference(other .. "/parameters.safetensors",
        programs.dump(p, { "--cycles", 30 }) .. "/parameters.safetensors") > 1e-3, "--seed does nothing")
end)

add("parameters change at the boundary only", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local out = programs.train(digits(t, programs, 1), { "--cycles", 3, "--watch", "fc1.weight:10",
        "--quiet" }).out
    local shown = {}
    for k, values in out:gmatch("iteration (%d+), first 10 elements of fc1.weight:([^\n]*)\n") do
        t.equal(tonumber(k), #shown)
        t.equal(select(2, values:gsub("[^,]+", "")), 10)
        shown[#shown + 1] = values
    end
    t.equal(#shown, 12)
    for k = 1, 11 do                            -- shown[1] is iteration 0
        local boundary = k % 4 == 3
        t.equal(shown[k + 1] ~= shown[k], boundary, "iteration " .. k .. " differs from the one before")
    end
end)

add("gagen run trains and gives the program's status", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.temp()
    local spec, ran = programs.folder() .. "/digits_fold1.lua", nil
    digits(t, programs, 1)
    ran = programs.gagen { "run", spec, "-o", folder .. "/p", "--", "--cycles", "2", "--quiet", "--log",
        folder .. "/log", env = { "CFLAGS=-O0" } }
    t.equal(ran.status, 0, ran.err)
    local events = t.load("tests/lua/json.lua").lines(host.read(folder .. "/log"))
    t.equal(events[#events].cycle, 2)
    t.equal(events[#events].event, "end")
    ran = programs.gagen { "run", spec, "-o", folder .. "/p", "--", "--cycles", "x", env = { "CFLAGS=-O0" } }
    t.equal(ran.status, 1)
    t.match(ran.err, "^digits_fold1: %-%-cycles: 'x' found, a whole number from 1 to %d+ expected\n$")
end)

add("a program needs its own folder, cc and make only", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = digits(t, programs, 1)
    local folder = t.temp() .. "/elsewhere"
    t.equal(t.run { "cp", "-r", p.folder, folder }.status, 0)
    t.equal(t.run { "make", "-s", "-C", folder, "clean" }.status, 0)
    t.equal(host.exists(folder .. "/train"), false)
    local flags = "CFLAGS=" .. t.load("tests/lua/marches.lua")(t).level "-O0"
    local function make(...)
        local made = t.run { "make", "-s", "-C", folder, env = { "MAKEFLAGS", flags }, ... }
        t.equal({ made.status, made.err }, { 0, "" })
        return made.out
    end
    local function compiled(...) -- the sources that a make like this would compile
        local list = {}
        for source in make("-n", ...):gmatch " %-c %-o %S+ (%S+)" do list[#list + 1] = source end
        return list
    end
    local function touch(file) t.equal(t.run { "touch", folder .. "/" .. file }.status, 0) end
    t.equal(make "-j2", "")
    t.equal(make "-n", "", "make with nothing to do")
    assert(#compiled "CFLAGS=-O1" > 30)                -- with other flags it compiles all
    touch "kernels.c"
    t.equal(compiled(), { "step.c", "model.c", "main.c" })
    touch "runtime/loop/cycle.c"
    t.equal(compiled(), { "step.c", "model.c", "main.c", "runtime/loop/cycle.c" })
    t.equal(make(), "")
    t.equal(t.run { "rm", "-r", folder .. "/built" }.status, 0)
    t.equal(make "-n", "", "make without objects and with nothing to do")
    touch "runtime/loop/cycle.h"
    assert(#compiled() > 30)
    local moved = { name = p.name, folder = folder, train = t.root .. "/" .. folder .. "/train" }
    programs.identical(programs.dump(moved, { "--cycles", 5 }), programs.dump(p, { "--cycles", 5 }))
end)

add("closed standard streams do not write into other files", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p, folder = digits(t, programs, 1), t.temp()
    local command = ("GAGEN_DATA=%s/specs/data %s/train --cycles 3 --checkpoint %s/c"):format(t.root,
        p.folder, folder)
    t.equal(t.shell(command .. " <&- >&- 2>&-").status, 0)
    local lock, count = host.read(folder .. "/c/.lock"), 0
    t.match(lock, "^pid [^\n]*\n?$")
    t.equal(t.shell(command .. " --log " .. folder .. "/log >&-").status, 0)
    for line in host.read(folder .. "/log"):gmatch("[^\n]+") do
        t.match(line, "^{.*}$")
        count = count + 1
    end
    t.equal(count, 7)
end)

return tests
