-- train --watch-kernels: an edited kernels.c is taken if it computes the same, else refused with the element that
-- differs, and the run has the bits of one that nobody touched.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- A running mean, random draws and a cycle of four: all that a comparison must leave as it is.
local SPEC = [[
data       { "csv", train = "tiny.csv", eval = "tiny.csv", target = "last" }
batch      (3)
accumulate (4)
model      { linear "fc1" { 8 }, batchnorm "bn" { rows = 3 }, tanh {}, dropout { 0.1 }, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 0.01 }
train      { updates = 100, seed = 3 }
eval       { every = 1000000, metrics = { "loss", "accuracy" } }
]]

-- Starts train-watch, waits for its first update, takes each step and waits until the log has its answer, asks the run
-- to stop. step[i]: a command that edits kernels.c.
local DRIVER = [[
    $1/train-watch --watch-kernels --threads 2 --cycles 100000000 --log $2/log --checkpoint $2/c > /dev/null 2> $2/said &
    run=$!
    await() {
        for i in $(seq 3000); do
            if [ $(grep -c "\"event\":\"$1\"" $log) -ge $2 ]; then return; fi
            kill -0 $run || exit 9
            sleep 0.05
        done
        exit 8
    }
    log=$2/log; kernels=$1/kernels.c; steps=$2/steps; touch $log
    await update 1
    n=0
    for step in $(ls $steps | sort -n); do
        n=$((n + 1)); cp $steps/$step $kernels.new; mv $kernels.new $kernels; await kernels $n
    done
    kill -TERM $run; wait $run]]

-- The program of these tests, or of another spec, in a folder of its own, and the text of its kernels.
local function copy_of(t, programs, name, spec)
    local p = programs.build(name or "watched", spec or SPEC, { watch = true })
    local folder = t.temp() .. "/program"
    assert(t.run { "cp", "-r", p.folder, folder }.status == 0)
    return p, folder, assert(host.read(folder .. "/kernels.c"))
end

-- Runs the driver with texts of kernels.c. Returns the events, what the program has said, and the folder of the log and
-- of the checkpoints.
local function edited(t, folder, texts)
    local place = t.temp()
    for i, text in ipairs(texts) do t.write(("%s/steps/%d"):format(place, i), text) end
    local result = t.run { "bash", "-c", DRIVER, "driver", folder, place, timeout = 500, env = { "MAKEFLAGS" } }
    local said = host.read(place .. "/said") or ""
    t.equal(result.status, 75, said .. result.err)
    local found = {}
    for _, event in ipairs(t.load("tests/lua/json.lua").lines(host.read(place .. "/log"))) do
        if event.event == "kernels" then found[#found + 1] = event end
        found.cycles = event.cycle or found.cycles
    end
    t.equal(#found, #texts)
    return found, said, place
end

-- The text with `from` replaced inside the function `name`.
local function inside(text, name, from, to)
    local first = assert(text:find("\nstatic void " .. name .. "(", 1, true), name)
    local last = assert(text:find("\n}\n", first, true))
    local at, stop = text:find(from, first, true)
    assert(at and at < last, from .. " in " .. name)
    return text:sub(1, at - 1) .. to .. text:sub(stop + 1)
end

-- The run has the parameters and the state of one that was never interrupted.
local function untouched(t, programs, p, cycles, place)
    local straight = programs.dump(p, { "--threads", 1, "--cycles", cycles + 2 })
    programs.identical(programs.dump(p, { "--threads", 1, "--cycles", cycles + 2, "--resume", "latest",
        "--checkpoint", place .. "/c" }), straight)
    t.equal(host.exists(place .. "/c"), "folder")
end

local SUM = "const real value = sum[k];"

add("right edits are taken without a restart, and the bits are those of a run without edits", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p, folder, text = copy_of(t, programs)
    local loop = "for (int k = 0; k < width; k++) {\n            const size_t i = (size_t)o * INNER + i0 + k;"
    local turned = inside(text, "column_sum_3", loop, (loop:gsub("int k = 0; k < width; k%+%+",
        "int k = width - 1; k >= 0; k--")))
    local events, said, place = edited(t, folder, { text .. "/* a comment */\n", turned })
    for i, changed in ipairs { text .. "/* a comment */\n", turned } do
        local e = events[i]
        t.equal({ e.taken, e.result, e.sha256 }, { true, "equal", host.sha256(changed) })
        t.equal({ e.kernel, e.element, e.reason }, {})
    end
    local taken = "\nwatched: cycle %d+: the edited kernels%.c is taken: all bits are equal"
    t.match(said, "^run %d+: [^\n]+\nready" .. taken .. taken .. "\ncheckpoint ")
    untouched(t, programs, p, events.cycles, place)
    for _, name in ipairs(host.list(folder .. "/built")) do assert(not name:find "module", name) end
end)

add("wrong edits are refused with the first element that differs, and training goes on as before", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p, folder, text = copy_of(t, programs)
    local wrong = {
        -- element 1 of a bias, in all micro-steps but the first
        inside(text, "column_sum_3", "y[i] = add ? y[i] + value", "y[i] = add ? y[i] + value + (k == 1 ? 0.25f : 0)"),
        -- row 2, column 1 of the logits' gradient; later ones are wrong too
        inside(text, "cross_entropy_dx_3x3", "y[i] = value;", "y[i] = value + (i >= 7 ? 0.5f : 0);"),
        -- element 11 of all parameters: row 2, column 3 of the first weight, which has 4 columns
        inside(text, "update_all", "run_w[i] = w", "run_w[i] = (i == 11 ? 0.5f : 0) + w"),
        -- the second moment of the same
        inside(text, "update_all", "run_v[i] = v;", "run_v[i] = i == 11 ? 2 * v + 1 : v;"),
        inside(text, "hit_3", "y[i] = best == target[i]", "y[i] = i == 1 ? 0.5f : best == target[i]"), -- of evaluations
    }
    local events, said, place = edited(t, folder, wrong)
    local places = { { "column_sum_3", "d_fc2.bias[1]", 0.25 }, { "cross_entropy_dx_3x3", "d_fc2_y[2, 1]", 0.5 },
        { "update_all", "fc1.weight[2, 3]", 0.5 }, { "update_all", "fc1.weight.v[2, 3]" }, { "hit_3", "hits[1]" } }
    for i, expected in ipairs(places) do
        local e = events[i]
        t.equal({ e.taken, e.result, e.kernel, e.element }, { false, "differs", expected[1], expected[2] })
        if expected[3] then t.near(e.after - e.before, expected[3], 1e-5) end
        assert(math.abs(e.after - e.before) > e.most and e.most < 1e-3, e.most)
        t.contains(said, ("the edited kernels.c is refused: %s = "):format(expected[2]))
        t.contains(said, " by " .. expected[1] .. " (")
    end
    untouched(t, programs, p, events.cycles, place)
end)

add("a difference of rounding is taken and said, against the kernels in use", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, folder, text = copy_of(t, programs)
    local rounded = inside(text, "column_sum_3", SUM, "const real value = sum[k] * (1 + 0x1p-20f);")
    local beyond = inside(text, "column_sum_3", SUM, "const real value = sum[k] * (1 + 0x1p-14f);")
    local events, said = edited(t, folder, { rounded, text, beyond })
    for i = 1, 2 do
        local e = events[i]
        t.equal({ e.taken, e.result, e.kernel }, { true, "rounded", "column_sum_3" })
        t.match(e.element, "^d_fc2%.bias%[%d%]$")
        assert(e.before ~= e.after and math.abs(e.after - e.before) <= e.most)
    end
    t.equal({ events[3].taken, events[3].result }, { false, "differs" })
    t.contains(said, "the edited kernels.c is taken: 2 results differ by rounding, most of all d_fc2.bias[")
    t.contains(said, "the edited kernels.c is refused: d_fc2.bias[")
end)

-- The scale grows behind each update, and each second gradient overflows.
local SKIPPING = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (3)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.001 }
precision  "f16"
scaler     { initial_scale = 2^20, max_scale = "none", growth_interval = 1, hysteresis = 0 }
train      { updates = 100, seed = 3 }
]]

add("an edit of the update is not compared in a cycle whose update is skipped", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, folder, text = copy_of(t, programs, "watch_skips", SKIPPING)
    local texts = {}
    for i = 1, 6 do texts[i] = inside(text, "update_all", "w - s->rate", ("w + %d * s->rate"):format(i)) end
    local events = edited(t, folder, texts)
    for i = 1, #texts do
        t.equal({ events[i].taken, events[i].result, events[i].kernel }, { false, "differs", "update_all" })
    end
end)

add("an edit of what adds up gradients is compared before a cycle of one micro-step too", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, folder, text = copy_of(t, programs, "watch_single", (SPEC:gsub("accumulate %(4%)",
        "accumulate { 1, later = { [100000000] = 2 } }")))
    local events = edited(t, folder, { inside(text, "column_sum_3", "y[i] + value", "y[i] + 2 * value") })
    t.equal({ events[1].taken, events[1].result, events[1].kernel }, { false, "differs", "column_sum_3" })
end)

add("an edit of what exchanges parameters and averages for an evaluation is compared", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, folder, text = copy_of(t, programs, "watch_averages", (SPEC:gsub("lr = 0.01", "%0, ema = 0.9")))
    local events = edited(t, folder, { inside(text, "exchange", "run_ema[i] = x;", "run_ema[i] = x + 1;"),
        text .. "/* a comment */\n" })
    t.equal({ events[1].taken, events[1].result }, { false, "differs" })
    t.equal({ events[2].taken, events[2].result }, { true, "equal" })
    t.match(events[1].element, "%.ema%[")
end)

add("texts that do not compile, other functions, a crash: refused with a sentence", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p, folder, text = copy_of(t, programs)
    local events, said, place = edited(t, folder, {
        text:sub(1, #text // 2),                    -- a file that is being written
        text .. "/* whole */\n",
        text .. "int wrong = ;\n",
        (text:gsub("column_sum_3%(", "column_summe_3(")),
        (text:gsub("void hit_3%(ga_worker %*w, ", "%0int more, ")),
        inside(text, "column_sum_3", SUM, SUM .. " *(volatile char *)(size_t)(8 + w->index) = 0;"),
        text .. "/* again */\n" })
    local reasons = { "^no function [%w_]+, which step.c calls$", false, "^the compiler's error, shown above$",
        "^no function column_sum_3, which step.c calls$", "^other parameters of hit_3 than step.c gives$",
        "^Segmentation fault in column_sum_3$", false }
    for i, reason in ipairs(reasons) do
        local e = events[i]
        t.equal({ e.taken, e.result }, { not reason, reason and "failed" or "equal" }, tostring(e.reason))
        if reason then t.match(e.reason, reason) end
    end
    t.match(said, "kernels%.c:%d+:%d+: [^\n]*error: ")
    untouched(t, programs, p, events.cycles, place)
    t.write(folder .. "/kernels.c", text .. "int wrong = ;\n")       -- before a start
    local result = programs.train({ train = folder .. "/train-watch" }, { "--watch-kernels", "--cycles", 1, status = 1 })
    t.contains(result.err, "\nwatched: kernels.c: the compiler's error, shown above\n")
end)

add("an edit that never ends: a stop ends the comparison, and the run with a checkpoint", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p, folder, text = copy_of(t, programs)
    t.write(folder .. "/endless", inside(text, "column_sum_3", SUM, SUM .. " while (sum[k] == sum[k]) {}"))
    local place = t.temp()
    local result = t.run { "bash", "-c", [[
        $1/train-watch --watch-kernels --quiet --threads 1 --cycles 100000000 --log $2/log --checkpoint $2/c &
        run=$!
        for i in $(seq 3000); do grep -qs update $2/log && break; sleep 0.05; done
        mv $1/endless $1/kernels.c
        for i in $(seq 3000); do
            set -- $1 $2 $(cat /proc/$run/task/$run/children)
            [ $# = 4 ] && [ "$(cat /proc/$3/comm)$(cat /proc/$4/comm)" = train-watchtrain-watch ] && break
            sleep 0.05
        done
        kill -TERM $run; wait $run]], "driver", folder, place, timeout = 500, env = { "MAKEFLAGS" } }
    t.equal(result.status, 75, result.err)
    t.contains(result.err, "the edited kernels.c is refused: the run was asked to stop")
    local events = t.load("tests/lua/json.lua").lines(host.read(place .. "/log"))
    t.equal(events[#events].reason, "signal")
    untouched(t, programs, p, events[#events].cycle, place)
end)

add("train makes train-watch by the command of its own build, and goes on as that program", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p, folder = copy_of(t, programs)
    assert(t.run { "rm", folder .. "/train-watch" }.status == 0)
    local command = host.read(folder .. "/.command")
    local own = { name = p.name, folder = folder, train = folder .. "/train" }
    local dump = programs.dump(own, { "--watch-kernels", "--cycles", 5, "--threads", 1 })
    t.equal(host.exists(folder .. "/train-watch"), "file")
    t.equal(host.read(folder .. "/.command"), command)
    programs.identical(dump, programs.dump(p, { "--cycles", 5, "--threads", 1 }))
end)

add("programs of several ranks or for a device, and evaluations, refuse the option", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("watch_ranks", SPEC .. 'parallel "ddp"\n', { comm = "self" })
    local result = programs.train(p, { "--watch-kernels", "--cycles", 1, status = 1 })
    t.equal(result.err, "watch_ranks: --watch-kernels: the ranks of this program would have to take the same kernels "
        .. "at the same boundary: generate without parallel\n")
    t.equal(host.exists(p.folder .. "/train_watch.c"), false)
    local main = programs.gagen { "show", p.spec, "main.c", "--target", "cuda", "--set", "parallel={}" }
    t.contains(main.out, "--watch-kernels: the kernels of this program are those of a device")
    local watched = programs.build("watched", SPEC, { watch = true })
    result = programs.train(watched, { "--watch-kernels", "--eval", status = 1 })
    t.contains(result.err, "--watch-kernels: given beside --eval, which does not train")
end)

return tests
