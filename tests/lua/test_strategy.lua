-- A loop of one's own around a program's library, in the order in which Lightning's Trainer calls ColossalAIStrategy, with
-- ranks, a scaler and divided parameters: what Lightning's tests of the strategy ask for, and what they mark as failing.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local DRIVER = "tests/e2e/strategy.c"

-- 3 micro-steps of 8 rows and 2 ranks: 240 rows are 5 cycles an epoch.
local SPEC = [[
name       "strategy"
data       { "csv", train = "clusters.csv", eval = "clusters_test.csv", target = "last" }
batch      (8)
accumulate (3)
model      { linear "fc1" { 12 }, relu {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "hybrid_adam", lr = 2e-2 }
clip       (1.0)
precision  "f16"
scaler     { initial_scale = 32 }
train      { epochs = 5, seed = 3 }
eval       { every = 1000, metrics = { "accuracy" } }
parallel   "%s"
]]

-- Rows of three classes around three points.
local function clusters(rows, seed)
    local list, state = {}, seed
    local function random()
        state = (state * 16807) % 2147483647
        return state / 2147483647
    end
    for i = 1, rows do
        local class, row = i % 3, {}
        for k = 1, 6 do row[k] = ("%.3f"):format((k % 3 == class and 1 or 0) + 1.5 * (random() - 0.5)) end
        row[7] = tostring(class)
        list[i] = table.concat(row, ",")
    end
    return table.concat(list, "\n") .. "\n"
end

local function build(t, mode)
    local programs = t.load("tests/lua/programs.lua")(t)
    local data = programs.folder() .. "/data/"
    t.write(data .. "clusters.csv", clusters(240, 5))
    t.write(data .. "clusters_test.csv", clusters(80, 77))
    local how = { comm = "mpi", lib = true, level = "-O1" }
    local p = programs.build("strategy_" .. mode, SPEC:format(mode), how)
    local drive = p.folder .. "/drive"
    local result = t.run { "mpicc", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-I" .. p.folder, "-o", drive, DRIVER,
        p.folder .. "/libstrategy.a", "-ljansson", "-lz", "-lm", "-pthread" }
    t.equal(result.status, 0, result.err)
    return function(what, folder)
        local command = t.mpirun(2)
        table.move({ drive, what, folder }, 1, 3, #command + 1, command)
        command.env = { "ROWS_FILE=" .. t.root .. "/" .. data .. "clusters_test.csv",
            "GAGEN_DATA=" .. t.root .. "/" .. data, "GAGEN_TIMEOUT=300" }
        local ended = t.run(command)
        t.equal(ended.status, 0, what .. "\n" .. ended.out .. ended.err)
        return ended.out
    end
end

-- The measurements of a name in what the driver printed: { rows, loss, accuracy }.
local function measured(out, name)
    local list = {}
    for rows, loss, accuracy in out:gmatch(name .. " (%S+) (%S+) (%S+)\n") do
        list[#list + 1] = { tonumber(rows), tonumber(loss), tonumber(accuracy) }
    end
    return list
end

for _, mode in ipairs { "zero2", "zero3" } do
    add(mode .. ": setup, fit, test, state dict, restore after setup, teardown", function(t)
        local drive, folder = build(t, mode), t.temp()
        local out = drive("fit", folder)
        local before, epochs, test = measured(out, "before"), measured(out, "epoch"), measured(out, "test")
        t.equal(#epochs, 4)
        t.equal(before[1][1], 80)
        assert(epochs[4][2] < before[1][2], out)
        assert(test[1][3] > 0.7, out)                   -- accuracy
        t.equal(test[1], epochs[4])                     -- the same rows, measured again
        t.contains(out, "rank 0 keeps 4 tensors, 123 elements\nrank 1 keeps 0 tensors, 0 elements\n")

        local again = drive("restore", folder)
        t.equal(measured(again, "fresh"), before)
        t.equal(measured(again, "test"), test)
        t.equal(#measured(again, "epoch"), 1)

        t.equal(measured(drive("test", t.temp()), "test"), before)
    end)
end

-- The setup of the strategy raises errors for these: a table of accumulation, clips by value, other optimizers than Adam,
-- groups of frozen parameters and of other rates, another precision than 16, gradients that are watched.
local REFUSED_THERE = [[
data       { "csv", train = "clusters.csv", target = "last" }
batch      (8)
accumulate { 3, later = { [2] = 1 } }
model      { linear "fc1" { 12 }, relu {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 1e-2, momentum = 0.9, groups = { { "fc1.bias", frozen = true }, { "fc2.*", lr_scale = 2 } } }
clip       { 1.0, value = 0.05 }
precision  "%s"
train      { updates = 4, seed = 3 }
parallel   "%s"
]]

add("ported: what the strategy's setup refuses is trained: two ranks with divided parameters are one", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    t.write(programs.folder() .. "/data/clusters.csv", clusters(240, 5))
    local one = programs.build("strategy_refused_one", (REFUSED_THERE:format("f64", "none")
        :gsub("batch      %(8%)", "batch (16)")))
    local two = programs.build("strategy_refused", REFUSED_THERE:format("f64", "zero3"), { comm = "mpi" })
    programs.close(programs.dump(two, { ranks = 2, "--threads", 1 }), programs.dump(one, { "--threads", 1 }), 1e-12)
end)

return tests
