-- The other commands of gagen as a user types them, and regeneration over edited files.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = "specs/digits_mlp.lua"

local function gagen(t, ...)
    local result = t.load("tests/lua/programs.lua")(t).gagen { ... }
    t.equal(result.status, 0, result.err)
    return result.out, result.err
end

add("doctor", function(t)
    local out = gagen(t, "doctor")
    for _, name in ipairs { "compiler", "make", "cpu", "lua", "jansson", "zlib" } do
        t.match(out, "\n?  " .. name .. " +ok +%S")
    end
    t.match(out, "%d+ warnings, 0 failures: ready for CPU training\n$")
    local programs = t.load("tests/lua/programs.lua")(t)
    local result = programs.gagen { "doctor", env = { "CC=no-such-compiler" } }
    t.equal(result.status, 3)
    t.match(result.out, "compiler +fail")
end)

add("list", function(t)
    local out = gagen(t, "list")
    for _, kind in ipairs { "words", "layers", "ops", "optimizers", "schedules", "losses" } do
        t.contains("\n" .. out, "\n" .. kind .. ":\n")
    end
    t.match(gagen(t, "list", "optimizers"), "^optimizers:\n.*  adamw .*\n      lr = 0%.001, betas = { 0%.9, 0%.999 }")
    local wrong = t.load("tests/lua/programs.lua")(t).gagen { "list", "optimisers" }
    t.equal(wrong.status, 1)
    t.contains(wrong.err, "did you mean 'optimizers'?")
end)

-- digits: 1437 rows, 22 updates an epoch, 660 in all; cosine from 0.01 to 0
add("lr prints the rates that the program uses", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local shown = {}
    for update, rate in gagen(t, "lr", SPEC):gmatch("(%d+)\t(%S+)\n") do
        t.equal(tonumber(update), #shown + 1)
        shown[#shown + 1] = tonumber(rate)
    end
    t.equal(#shown, 660)
    t.near(shown[1], 0.01, 1e-12)
    t.near(shown[331], 0.005, 1e-9)
    local p = programs.build("digits_fold1", host.read(SPEC))
    for _, event in ipairs(programs.events(p, { "--cycles", 40 })) do
        if event.event == "update" then t.near(event.lr, shown[event.update], 1e-8 * shown[event.update]) end
    end
end)

add("plan, kernels, show and check", function(t)
    local plan = t.load("tests/lua/json.lua").read((gagen(t, "plan", "--json", SPEC)))
    t.equal(plan.format, 1)
    t.equal(plan.name, "digits_mlp")
    t.equal(plan.totals.parameters, 64 * 64 + 64 + 10 * 64 + 10)
    t.equal(#plan.parameters, 4)
    t.match(gagen(t, "plan", SPEC), "^digits_mlp  4,810 parameters ")
    local step = gagen(t, "show", SPEC)
    t.contains(step, "static void cycle_4(")
    t.equal((gagen(t, "show", SPEC, "step.c")), step)
    t.contains(gagen(t, "kernels", SPEC), "_relu_16x64x64(")
    t.equal(select(2, gagen(t, "check", SPEC)), SPEC .. ": ok\n")
    -- each call of the plan is shown as a whole function: its comment, its name, its end
    for _, target in ipairs { "c", "cuda" } do
        plan = t.load("tests/lua/json.lua").read((gagen(t, "plan", "--json", SPEC, "--target", target)))
        for _, k in ipairs(plan.kernels) do
            local text = gagen(t, "show", SPEC, k.name, "--target", target)
            t.match(text, "^/%* [^\n]*" .. (k.kernel or k.fn))
            t.match(text, "\n[%a_][^\n]* " .. (k.kernel or k.fn) .. "%(")
            t.match(text, "\n}\n$")
            t.equal(select(2, text:gsub("\n}\n", "")), 1)
            t.equal((gagen(t, "show", SPEC, k.fn, "--target", target)), text)
        end
    end
    local wrong = t.load("tests/lua/programs.lua")(t).gagen { "show", SPEC, "stp.c" }
    t.equal(wrong.status, 1)
    t.contains(wrong.err, "did you mean 'step.c'?")
end)

add("output that cannot be written whole is an error, however long", function(t)
    if host.exists "/dev/full" == nil then t.not_run "/dev/full is not there" end
    for _, command in ipairs { { "version" }, { "kernels", SPEC }, { "plan", SPEC, "--json" } } do
        local result = t.shell(("%s %s > /dev/full"):format(t.gagen, table.concat(command, " ")))
        t.equal(result.status, 3, command[1])
        t.contains(result.err, "gagen: standard output: it could not be written whole")
    end
end)

add("wrong words on the command line", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    for _, case in ipairs {
        { "expected a spec or a command" },
        { "unknown option '--jsn'", "plan", SPEC, "--jsn" },
        { "--ranks: '0', expected 1..256", "plan", SPEC, "--ranks", "0" },
        { "--threads: '1e1', expected 1..1024", "plan", SPEC, "--threads", "1e1" },
        { "--threads: '0x8', expected 1..1024", "plan", SPEC, "--threads", "0x8" },
        { "--ranks: the spec has no parallel", "plan", SPEC, "--ranks", "2" },
        { "--march: 'sapphire', expected one of", "plan", SPEC, "--march", "sapphire" },
        { "-o: given twice", SPEC, "-o", "a", "-o", "b" },
        { "plan: expected a spec", "plan" },
        { "no/such.lua", "no/such.lua" },
        { "run SPEC [-- OPTIONS]: takes no --json", "run", SPEC, "--json" },
        { "lr SPEC: takes no words behind --", "lr", SPEC, "--", "--cycles" },
        { "unexpected word 'step.c'", "kernels", SPEC, "step.c" },
        { "what goes to the program stands behind --", "run", SPEC, "100" },
        { "--without: no pass 'fusio' there", "plan", SPEC, "--without", "fusio" },
        { "unknown command 'plna'\ndid you mean 'plan'?", "plna", SPEC },
        { "options of the program stand behind --: gagen run SPEC -- --cycles", "run", SPEC, "--cycles", "3" },
        { "digits_mlp: there is no such file, expected a spec\ndid you mean 'specs/digits_mlp.lua'?", "digits_mlp" },
        { "gagen new my_digits_mlp --like digits_mlp copies it", "plan", "no/digits_mlp.lua" },
        { "did you mean 'specs/mnist_mlp.lua'?", "check", "specs/mnist_mpl.lua" },
        { "help: --man and WORD are given, expected one of them", "help", "--man", "plan" },
        { "help: --markdown and --completion are given, expected", "help", "--completion", "zsh", "--markdown" },
        { "generate: --stop-after and --force are given, expected", SPEC, "--stop-after", "update", "--force" },
        { "check: --equiv and --target are given", "check", SPEC, "--equiv", "A=1,2", "--target", "cuda" },
        { "diff: --set says how a spec is read, expected a spec too", "diff", "tests", "docs", "--set", "batch=2" },
        { "report: --ranks says how a spec is read, expected a spec too", "report", "x.jsonl", "--ranks", "2" },
    } do
        local result = programs.gagen { table.unpack(case, 2) }
        t.equal(result.status, 1, table.concat(case, " "))
        t.contains(result.err, case[1])
        t.equal(result.out, "")
    end
end)

add("help keeps its columns apart", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local text, lines = programs.gagen({ "help" }).out:match("^(.-)\n\ngagen help WORD"), 0
    for line in text:gmatch("\n(  [^\n]+)") do
        t.equal(#line > 40 and line:sub(32, 32) or " ", " ", line)
        lines = lines + 1
    end
    assert(lines > 30, lines)
end)

-- a signal reaches the program, which saves and exits with 75; gagen waits for it and exits with 75 too
add("run forwards a signal to the program", function(t)
    local folder = t.root .. "/" .. t.temp()
    local result = t.shell(([[
        env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL CFLAGS=-O0 XDG_CACHE_HOME=%s %s run %s -o %s/p -- --cycles 1000000000 \
            --quiet 2> %s/err &
        until grep -q '^ready' %s/err || ! kill -0 $!; do sleep 0.1; done
        kill -TERM $!; wait $!; echo $?]]):format(t.root .. "/" .. t.build .. "/tests/cache", t.gagen, SPEC, folder, folder, folder))
    t.equal(result.out, "75\n")
    assert(t.shell("ls -d " .. folder .. "/p/runs/001/checkpoints/cycle-*").status == 0)
end)

add("a pattern that fits no test fails", function(t)
    local runner = t.temp():match("^(.*)/tmp/") .. "/run"
    local result = t.run { runner, "there is no such test" }
    t.equal(result.status, 1)
    t.equal(result.err, "no test has a name that fits 'there is no such test'\n")
    t.match(t.run { runner, "rng" }.out, "%d test%(s%) run")
end)

add("an edited file is kept", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.temp() .. "/p"
    gagen(t, SPEC, "-o", folder)
    local written = host.read(folder .. "/kernels.c")
    t.write(folder .. "/kernels.c", written .. "/* mine */\n")
    t.write(folder .. "/notes.txt", "mine too")
    local refused = programs.gagen { SPEC, "-o", folder }
    t.equal(refused.status, 1)
    t.contains(refused.err, "1 file was edited after gagen wrote it: kernels.c")
    t.contains(refused.err, "--force")
    t.equal(host.read(folder .. "/kernels.c"), written .. "/* mine */\n")
    gagen(t, SPEC, "-o", folder, "--force")
    t.equal(host.read(folder .. "/kernels.c"), written)
    t.equal(host.read(folder .. "/edited/kernels.c"), written .. "/* mine */\n")
    t.equal(host.read(folder .. "/notes.txt"), "mine too")
    gagen(t, SPEC, "-o", folder)
    -- a second edit does not replace the copy of the first one
    t.write(folder .. "/kernels.c", written .. "/* again */\n")
    gagen(t, SPEC, "-o", folder, "--force")
    t.equal(host.read(folder .. "/edited/kernels.c"), written .. "/* mine */\n")
    t.equal(host.read(folder .. "/edited/kernels.c.2"), written .. "/* again */\n")
    t.write(folder .. "/kernels.c", written .. "/* mine */\n")
    gagen(t, SPEC, "-o", folder, "--force")
    t.equal(host.exists(folder .. "/edited/kernels.c.3"), false)
end)

add("a folder with files of others asks for --force, and nothing is written", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.temp() .. "/p"
    t.write(folder .. "/main.c", "mine")
    local function refused(found)
        local result = programs.gagen { SPEC, "-o", folder }
        t.equal(result.status, 1)
        t.equal(result.err, ("%s: %s and no MANIFEST of gagen's, an empty folder or a program of gagen expected: %s\n"
            .. "-o another folder, or --force to write into this one (a copy of each overwritten file goes to "
            .. "%s/edited)\n")
            :format(folder, found:match "^[^:]*", found:match ": (.*)", folder))
    end
    refused "1 name found: main.c"
    t.equal(host.list(folder), { "main.c" })
    t.write(folder .. "/MANIFEST", "mine too")
    for i = 1, 4 do t.write(folder .. "/runtime/base/" .. i .. ".c", "") end
    refused "6 names found: MANIFEST, main.c, runtime/base/1.c, runtime/base/2.c, runtime/base/3.c, ..."
    t.equal(host.list(folder), { "MANIFEST", "main.c", "runtime" })
    gagen(t, SPEC, "-o", folder, "--force")
    t.equal(host.read(folder .. "/edited/main.c"), "mine")
    t.equal(host.read(folder .. "/edited/MANIFEST"), "mine too")
    gagen(t, SPEC, "-o", folder)
end)

add("data, a program and its checkpoints are no files of others", function(t)
    local folder = t.temp() .. "/p"
    for _, name in ipairs { "train", "data/x.csv", "runs/001/log.jsonl", "checkpoints/cycle-000000001/manifest.json" }
    do
        t.write(folder .. "/" .. name, "mine")
    end
    gagen(t, SPEC, "-o", folder, "--set", "data.train=" .. ("%q"):format(t.root .. "/specs/data/digits/digits.csv.gz"))
    t.equal(host.read(folder .. "/data/x.csv"), "mine")
end)

-- Ends gagen before the n-th file is in its place, or after it. A generation renames a file for each that it changes.
add("a generation that was killed needs no --force, nor do those after it", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function killed(folder, n, effect, accumulate)
        local result = programs.gagen { SPEC, "-o", folder, "--set", "accumulate=" .. accumulate, env = {
            "GA_FAIL_PROGRAM=gagen", "LD_PRELOAD=" .. t.root .. "/" .. t.build .. "/tests/faults/faults.so",
            ("GA_FAIL_AT=rename:%d=%s"):format(n, effect) } }
        t.equal(result.status, 128 + 9, result.err)
    end
    local folder = t.temp() .. "/new"
    for _, n in ipairs { 1, 2, 40 } do
        killed(folder .. n, n, "kill", 4)
        gagen(t, SPEC, "-o", folder .. n, "--set", "accumulate=2")
    end
    folder = t.temp() .. "/older"
    gagen(t, SPEC, "-o", folder)
    for n, effect in ipairs { "kill", "killed", "kill", "killed" } do
        killed(folder, n, effect, 4 + n)
    end
    killed(folder, 8, "killed", 3)
    gagen(t, SPEC, "-o", folder)
    local plain = t.temp() .. "/plain"
    gagen(t, SPEC, "-o", plain)
    t.equal(host.read(folder .. "/MANIFEST"), host.read(plain .. "/MANIFEST"))
    t.write(folder .. "/step.c", "mine")
    t.match(programs.gagen { SPEC, "-o", folder }.err, ": 1 file was edited after gagen wrote it: step.c\n")
end)

add("files of another version are removed; edited files and files of others stay", function(t)
    local folder = t.temp() .. "/p"
    gagen(t, SPEC, "-o", folder)
    local function add_file(name, content, hash)
        t.write(folder .. "/" .. name, content)
        t.write(folder .. "/MANIFEST", ("%s%s  %s\n"):format(host.read(folder .. "/MANIFEST"),
            host.sha256(hash or content), name))
    end
    add_file("runtime/team.c", "a flat runtime")
    add_file("runtime/base/old.h", "a file of a folder")
    add_file("runtime/log.c", "edited", "written")
    add_file("runtime/base/../../runtime/kept.c", "no name of gagen's")
    gagen(t, SPEC, "-o", folder)
    t.equal(host.exists(folder .. "/runtime/team.c"), false)
    t.equal(host.exists(folder .. "/runtime/base/old.h"), false)
    t.equal(host.read(folder .. "/runtime/log.c"), "edited")
    t.equal(host.read(folder .. "/runtime/kept.c"), "no name of gagen's")
    t.equal(host.exists(folder .. "/runtime/base/team.c"), "file")
end)

add("the commands printed as next steps can be pasted into a shell", function(t)
    local folder = t.temp() .. "/it's here"
    local result = t.load("tests/lua/programs.lua")(t).gagen { SPEC, "-o", folder }
    t.equal(t.shell("printf %s " .. t.match(result.err, "next: make %-C (.*)\n$")).out, folder)
end)

add("a second generation rewrites no file", function(t)
    local folder = t.temp() .. "/p"
    gagen(t, SPEC, "-o", folder)
    local function times() return t.shell(("cd %s && stat -c '%%n %%y' * runtime/* runtime/*/*"):format(folder)).out end
    local before = times()
    gagen(t, SPEC, "-o", folder)
    t.equal(times(), before)
end)

return tests
