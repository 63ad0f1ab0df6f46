-- `check --equiv`: it agrees on correct programs, finds a gradient that is not accumulated or is divided wrongly, and
-- leaves no files.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- A residual model with an outer tensor in a `times` body, a clip, and a tail at the end of the epoch.
local SPEC = [[
data { "csv", train = "tiny.csv", split = { eval = 7 } }
batch { 4, global = 12 }
model(function(batch)
    local x = tanh(linear "in" { 6 } (batch.input))
    x = times(2) "h" (function(h) return h + gelu {} (linear "fc" { 6 } (h)) * x end) (x)
    return linear "out" { 3 } (x)
end)
loss "cross_entropy"
optimizer { "adamw", lr = 1e-2 }
schedule { "cosine", warmup = 2 }
clip (0.5)
train { epochs = 3, seed = 5 }
]]

-- gagen with a compiler that leaves out optimizations, which would take most of the time, and a cache of its own.
local function gagen(t, programs, command)
    local folder = ("%s/%s/tests/equiv"):format(t.root, t.build)
    local path, text = folder .. "/cc", ('#!/bin/sh\nexec %s\n'):format(t.compiler and t.compiler .. ' "$@" -O0'
        or ('cc "$@" %s -I%s/tests/include'):format(t.quick, t.root))
    assert(host.folder(folder))
    t.locked(folder .. ".lock", function()
        if host.exists(path) == "file" and host.read(path) == text then return end
        t.write(path, text)
        t.equal(t.run { "chmod", "+x", path }.status, 0)
    end)
    command.env = table.move(command.env or {}, 1, #(command.env or {}), 3, { "CC=" .. path, "XDG_CACHE_HOME=" .. folder })
    return programs.gagen(command)
end

local function equiv(t, arguments, spec)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path, folder = programs.folder() .. "/equiv.lua", t.temp()
    t.write(path, spec or SPEC)
    local command = { "check", path, "--json", env = { "TMPDIR=" .. t.root .. "/" .. folder } }
    local result = gagen(t, programs, table.move(arguments, 1, #arguments, #command + 1, command))
    t.equal(#host.list(folder), 0, "files are left in the temporary folder")
    local facts = result.out ~= "" and t.load("tests/lua/json.lua").read(result.out)
    return result, facts
end

-- A checkout whose file `name` has `from` replaced by `to`.
local function changed(t, name, from, to)
    local folder = t.temp()
    for _, room in ipairs { "gen", "runtime", "templates" } do
        t.equal(t.run { "cp", "-r", room, folder .. "/" .. room }.status, 0)
    end
    local text, count = host.read(name):gsub(from, to)
    t.equal(count, 1, name .. ": " .. from)
    t.write(folder .. "/" .. name, text)
    return { "--dev", folder }
end

add("the same gradients for any number of micro-steps", function(t)
    local result, facts = equiv(t, { "--equiv", "A=3,1,12" })
    t.equal(result.status, 0, result.err)
    t.equal(facts.equal, true)
    t.equal(facts.global_rows, 12)
    t.equal(facts.cycles, 3)
    local seen = {}
    for i, run in ipairs(facts.runs) do seen[i] = { run.accumulate, run.rows } end
    t.equal(seen, { { 3, 4 }, { 1, 12 }, { 12, 1 } })
    for i = 2, 3 do
        assert(facts.runs[i].gradients.difference <= 1e-12 and facts.runs[i].parameters.difference <= 1e-12)
    end
end)

for _, case in ipairs {
    { "gradients that are not added", "gen/emit/targets/c/matmul.lua", '"k > 0 || add"', '"k > 0"' },
    { "a mean over the micro-batch", "gen/emit/boundary/scaler.lua", "%(real%)%(%%s / m%->nominal%)", "(real)(%%s / (double)B)" },
} do
    add(case[1] .. " are seen", function(t)
        local how = changed(t, table.unpack(case, 2))
        local result, facts = equiv(t, { "--equiv", "A=1,3", table.unpack(how) })
        t.equal(result.status, 1, result.err)
        t.equal(facts.equal, false)
        assert(facts.runs[2].gradients.difference > 1e-3)
        assert(facts.runs[2].gradients.tensor ~= "")
    end)
end

add("a spec without rows for evaluation, and one with a best checkpoint", function(t)
    for _, spec in ipairs { (SPEC:gsub(", split = { eval = 7 }", "")),
        SPEC .. 'eval { metrics = { "loss", "accuracy" } }\ncheckpoint { best = "accuracy" }\n' } do
        local result = equiv(t, { "--equiv", "A=1,2" }, spec)
        t.equal(result.status, 0, result.err)
    end
end)

add("the printed table", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    equiv(t, { "--equiv", "A=5,1" })
    local result = gagen(t, programs, { "check", programs.folder() .. "/equiv.lua", "--equiv", "A=1,2" })
    t.equal(result.status, 0, result.err)
    t.match(result.out, "f64, 3 cycles of 12 rows, seed 5; all compared with A = 1\n")
    t.match(result.out, "\n +1 +12   %-\n +2 +6   [%d.e-]+")
    t.match(result.out, "\nequal: no difference above 1e%-12\n$")
end)

-- a loss that is not exact by definition is reported: all micro-steps count the same, despite different weights
add("a weight by micro-step gives other results, with the reason", function(t)
    local result = equiv(t, { "--equiv", "A=1,3", "--set", 'loss.weight="micro"', "--set",
        "loss.class_weights={ 1, 5, 25 }" })
    t.equal(result.status, 1, result.err)
    t.contains(result.out, "gives each micro-step the same weight")
    local programs = t.load("tests/lua/programs.lua")(t)
    local printed = gagen(t, programs, { "check", programs.folder() .. "/equiv.lua", "--equiv", "A=1,3", "--set",
        'loss.weight="micro"', "--set", "loss.class_weights={ 1, 5, 25 }" })
    t.equal(printed.status, 1, printed.err)
    t.match(printed.out, ", without %d+ elements whose gradients differ\n")
    t.equal(printed.out:find("rounding error", 1, true), nil)
end)

-- dropout, a tail that flushes, text rows: what is drawn depends on the row, not on the micro-step
add("dropout is the same for any number of micro-steps", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/equiv_dropout.lua"
    local text, count = SPEC:gsub('    return linear "out"', '    x = dropout(0.3)(x)\n    return linear "out"')
    t.equal(count, 1)
    t.write(path, text)
    local result = gagen(t, programs, { "check", path, "--equiv", "A=3,1", "--set",
        'accumulate={ tail = "flush" }' })
    t.equal(result.status, 0, result.err .. result.out)
end)

-- If the spec's cycles would take too long, one cycle of few rows is compared, and a message says so.
add("large cycles are cut to the rows that the numbers of micro-steps need", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/equiv_large.lua"
    t.write(path, (SPEC:gsub("global = 12", "global = 24"):gsub('linear "in" { 6 } %(batch.input%)',
        'linear "in" { 6 } (relu(linear "wide" { 200 } (relu(linear "first" { 200 } (batch.input)))))')))
    local folder = t.temp()
    for _, room in ipairs { "gen", "runtime", "templates" } do
        t.equal(t.run { "cp", "-r", room, folder .. "/" .. room }.status, 0)
    end
    local text, count = host.read("gen/command/equiv.lua"):gsub("WORK = 2e12", "WORK = 1e6")
    t.equal(count, 1)
    t.write(folder .. "/gen/command/equiv.lua", text)
    local result = gagen(t, programs, { "check", path, "--equiv", "A=2,1,4", "--dev", folder })
    t.equal(result.status, 0, result.err .. result.out)
    t.contains(result.out, "f64, 1 cycle of 4 rows (the spec's have 24), seed 5; all compared with A = 2")
    t.contains(result.err, "A = 4: 1 cycle of 4 x 1 rows")
    t.contains(result.out, "equal: no difference above 1e-12")
end)

-- The needs of two of the shipped specs: rows for four whole groups of batchnorm; word pieces of SST-2.
local MORE = { resnet18_cifar10 = { "--set", "batch=100" } }

local function word_pieces(t, data)
    local folder, vocabulary = t.temp(), data .. "/bert/bert-base-uncased-vocab.txt"
    if not (host.exists(vocabulary) and host.exists(data .. "/sst2/train.tsv")) then return data end
    for _, part in ipairs { { "train", "sst2_train" }, { "train", "sst2_16000" }, { "dev", "sst2_dev" } } do
        local result = t.run { t.root .. "/" .. t.gagen, "tokenize", "bert", ("%s/sst2/%s.tsv"):format(data, part[1]),
            ("%s/%s.safetensors"):format(folder, part[2]), "--vocab", vocabulary, "--length", "64", "--types",
            "--first", part[1] == "dev" and "872" or "16000" }
        t.equal(result.status, 0, result.err)
    end
    return folder
end

-- Long: the shipped specs with data, except those that state why their results depend on A.
for _, file in ipairs(host.list "specs") do
    local name = file:match("^(.*)%.lua$")
    if name then
        add("shipped: " .. name, function(t)
            t.long()
            local data = t.environment("GAGEN_DATA")
            if data and name:find("sst2", 1, true) then data = word_pieces(t, data) end
            local argv = { t.root .. "/" .. t.gagen, "check", "specs/" .. file, "--equiv", "A=1,2,4", "--json",
                timeout = 3600, env = data and { "GAGEN_DATA=" .. data } or {} }
            table.move(MORE[name] or {}, 1, 2, #argv + 1, argv)
            local result = t.run(argv)
            if result.err:find("is not there", 1, true) then t.not_run(result.err:match("[^\n]*")) end
            local facts = t.load("tests/lua/json.lua").read(result.out)
            t.equal(facts.equal, name ~= "resnet18_tutorial", result.out)
            t.equal(#facts.notes > 0, not facts.equal, result.out)
        end)
    end
end

add("--equiv refuses wrong arguments", function(t)
    for _, case in ipairs {
        { "A=5,1", "a cycle of the spec has 12 rows (3 micro-steps of 4), which A = 5 does not divide" },
        { "A=1", "expected two numbers of micro-steps or more: A=1,2,4" },
        { "1,2", "expected two numbers of micro-steps or more: A=1,2,4" },
        { "A=2,2", "2 is given twice" },
        { "A=0,2", "A is 0, expected 1..65536" },
    } do
        local result = equiv(t, { "--equiv", case[1] })
        t.equal(result.status, 1)
        t.contains(result.err, case[2])
    end
end)

-- a failed build is an error of the environment, and its files are removed
add("a compiler that fails", function(t)
    local result = equiv(t, { "--equiv", "A=1,3", "--dev",
        changed(t, "templates/program/main.c", "enum { RUNNING", "enum RUNNING")[2] })
    t.equal(result.status, 3)
    t.contains(result.err, "make failed")
end)

return tests
