-- Cycles over epochs as gagen plans them (spec/accumulation.lua) against those of a program (runtime/loop/epochs.c):
-- their number, their lengths, refusals.
local accumulation = require "spec.accumulation"

local TAILS = { "drop", "flush", "carry" }

local TABLES = {
    { { from = 0, a = 1 } }, { { from = 0, a = 3 } }, { { from = 0, a = 4 } }, { { from = 0, a = 7 } },
    { { from = 0, a = 1 }, { from = 3, a = 2 }, { from = 5, a = 4 }, { from = 6, a = 3 } },
    { { from = 0, a = 5 }, { from = 12, a = 2 } },
    { { from = 0, a = 2 }, { from = 1, a = 9 } },
}

local EPOCHS = { 0.3, 0.5, 0.75, 1, 1.1, 2, 2.3, 3.5, 7, 10.01, 1000, 12345.67 }

-- A configuration of one row per micro-batch on one rank.
local function configuration(rows, entries, tail)
    local c = { data = { train_rows = rows, last = "drop" }, batch = 1, table = entries, tail = tail,
        accumulate = entries[1].a, largest = 0, mode = { ranks = false }, ranks = 1 }
    for _, entry in ipairs(entries) do c.largest = math.max(c.largest, entry.a) end
    return c
end

local function settings()
    local list = {}
    for rows = 0, 24 do
        for _, entries in ipairs(TABLES) do
            for tail, name in ipairs(TAILS) do
                for _, epochs in ipairs(EPOCHS) do
                    list[#list + 1] = { c = configuration(rows, entries, name), epochs = epochs, tail = tail - 1 }
                end
            end
        end
    end
    return list
end

local function question(s)
    local words = { s.c.data.train_rows, s.tail, ("%.17g"):format(s.epochs), #s.c.table }
    for _, entry in ipairs(s.c.table) do words[#words + 1] = entry.from .. " " .. entry.a end
    return table.concat(words, " ")
end

-- The results of the runtime for all settings.
local function answers(t, list)
    local folder = t.temp()
    local lines = {}
    for i, s in ipairs(list) do lines[i] = question(s) end
    t.write(folder .. "/questions", table.concat(lines, "\n") .. "\n")
    local built = t.run { "cc", "-I.", "-Iruntime", "-o", folder .. "/cycles", "tests/e2e/cycles.c",
        t.build .. "/libruntime.a", "-lm" }
    t.equal(built.status, 0, built.err)
    local out = {}
    for line in t.shell(folder .. "/cycles < " .. folder .. "/questions").out:gmatch("[^\n]+") do
        out[#out + 1] = line
    end
    t.equal(#out, #list, "answers")
    return out
end

-- Every length must be among those that step.c has a function for.
local function check_lengths(t, s, line)
    local sizes, longest = accumulation.sizes(s.c)
    local known = {}
    for _, a in ipairs(sizes) do known[a] = true end
    for length in line:gmatch(" (%d+)") do
        length = tonumber(length)
        if not known[length] and not (longest and length <= longest) then
            error(("%s: a cycle of %d, planned %s"):format(question(s), length, table.concat(sizes, ", ")))
        end
    end
end

local tests = {
    { "cycles are planned as they are served", function(t)
        local list = settings()
        local refused = 0
        for i, line in ipairs(answers(t, list)) do
            local s = list[i]
            if accumulation.complaint(s.c, 1) then
                t.equal(line, "refused", question(s))
                refused = refused + 1
            else
                t.equal(tonumber(line:match("^%d+")), accumulation.cycles(s.c, 1, s.epochs), question(s))
                check_lengths(t, s, line)
            end
        end
        assert(refused > 100 and refused < #list / 2)
    end },
}

-- A run that goes on with longer cycles. 30 micro-batches an epoch: 8 of them in two cycles of 4, then cycles of 7, until
-- three epochs are trained. With "flush" the first epoch ends with a cycle of 1, as no epoch of one length does.
for _, case in ipairs { { "drop", 3 + 4 + 4, 77 }, { "flush", 4 + 5 + 5, 82 }, { "carry", 11, 77 } } do
    local tail, cycles, batches = table.unpack(case)
    tests[#tests + 1] = { "resumed with longer cycles, a run trains the epochs of its spec: " .. tail, function(t)
        local programs, p = t.load("tests/lua/programs.lua")(t), {}
        for _, count in ipairs { 4, 7 } do
            p[count] = programs.build(("tail_epochs_%s_%d"):format(tail, count),
                ([[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (3)
accumulate { %d, tail = %q }
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { epochs = 3, seed = 3 }
]]):format(count, tail))
        end
        local checkpoint, log = t.temp(), t.temp() .. "/log"
        programs.train(p[4], { "--cycles", 2, "--checkpoint", checkpoint })
        programs.train(p[7], { "--resume", "latest", "--checkpoint", checkpoint, "--log", log })
        local rows, updates = 0, 0
        for _, event in ipairs(t.load("tests/lua/json.lua").lines(host.read(log))) do
            if event.event == "update" then rows, updates = rows + event.rows, updates + 1 end
            if event.event == "end" then t.equal(event.reason .. " " .. event.cycle, "done " .. 2 + cycles) end
        end
        t.equal({ updates, rows }, { cycles, 3 * batches })
    end }
end

return tests
