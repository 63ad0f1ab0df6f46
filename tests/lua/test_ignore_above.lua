-- Targets that do not count may have a value above all classes, 255 in masks of images. A program for them computes the
-- numbers of one whose data has -100 in its place.
local tests = {}
local function add(name, f)
    tests[#tests + 1] = { name, function(t) f(t, t.load("tests/lua/formats.lua")(t)) end }
end

local ROWS, CLASSES = 12, 3

-- Two places per row, with a class each.
local SPEC = [[
data       { "npy", train = { "above/x.npy", "above/%s.npy" }, shuffle = false,
             eval = { "above/x.npy", "above/%s.npy" } }
batch      (3)
accumulate (2)
model      { linear "a" { 6 }, gelu {}, linear "b" { 3 } }
loss       %s
optimizer  { "adamw", lr = 0.05 }
eval       { every = "epoch", metrics = { %s } }
train      { epochs = 2 }
%s
]]

-- The class of each place, or `ignored` at some of them; `other` at the seventh.
local function masks(ignored, other)
    local list = {}
    for i = 0, 2 * ROWS - 1 do list[i + 1] = (i * 5 + i // 4) % 7 < 2 and ignored or i * i % CLASSES end
    list[7] = other or list[7]
    return list
end

local function write_all(formats)
    local x, none = {}, {}
    for i = 1, 4 * ROWS do x[i] = (i * 37 % 17 - 8) / 8 end
    for i = 1, 2 * ROWS do none[i] = 255 end
    formats.write("above/x.npy", formats.npy("<f4", "<f", { ROWS, 2, 2 }, x))
    formats.write("above/below.npy", formats.npy("<i4", "<i4", { ROWS, 2 }, masks(-100)))
    for name, values in next, { above = masks(255), two = masks(255, 254), none = none } do
        formats.write("above/" .. name .. ".npy", formats.npy("|u1", "B", { ROWS, 2 }, values))
    end
end

local METRICS = '"loss", "accuracy"'
local CHUNKED = 'memory { logits = "chunked", logits_rows = 2 }\n'

-- { loss, where ignore = 255 follows; more words; metrics }
local LOSSES = {
    word = { '{ "cross_entropy"%s }', "" },
    smooth = { '{ "cross_entropy", class_weights = { 0.5, 2, 1 }, label_smoothing = 0.2%s }', "" },
    call = { "(function(out, batch) return cross_entropy { label_smoothing = 0%s } (out, batch.target) end)", "",
        '"loss"' },
    chunked = { '{ "cross_entropy"%s }', CHUNKED },
}

for name, case in next, LOSSES do
    add(name .. ": 255 does not count, as -100", function(t, formats)
        write_all(formats)
        local _, environment = dofile("tests/lua/devices.lua").open(t)
        local function run(file, ignore, target, env)
            local spec = SPEC:format(file, file, case[1]:format(ignore), case[3] or METRICS, case[2] .. target)
            local p = formats.programs.build(("ignore_%s_%s%s"):format(name, file, env and "_cuda" or ""), spec)
            local evals = {}
            for _, event in ipairs(formats.programs.events(p, { env = env })) do
                if event.event == "eval" then evals[#evals + 1] = { event.loss, event.accuracy } end
            end
            t.equal(#evals > 0, true)
            return formats.programs.dump(p, { env = env }), evals
        end
        local below, below_evals = run("below", "", "")
        local above, above_evals = run("above", ", ignore = 255", "")
        formats.programs.close(above, below, 0)
        t.equal(above_evals, below_evals)
        formats.programs.close(run("above", ", ignore = 255", 'target "cuda"', environment()), below, 1e-5,
            { "parameters" })
    end)
end

add("other values above the classes are refused", function(t, formats)
    write_all(formats)
    local path = formats.programs.folder() .. "/above.lua"
    local function refused(file, loss)
        t.write(path, SPEC:format(file, file, loss, METRICS, ""))
        local result = formats.programs.gagen { "check", path }
        t.equal(result.status, 1)
        return result.err
    end
    t.contains(refused("above", '"cross_entropy"'), "the model gives 3 classes, the data has the class 255; if it "
        .. "stands for what does not count, say ignore = 255")
    t.contains(refused("two", '{ "cross_entropy", ignore = 255 }'), "the model gives 3 classes, the data has the "
        .. "class 254")
    t.contains(refused("two", '"cross_entropy"'), "the model gives 3 classes, the data has the class 255\n")
    t.contains(refused("none", '{ "cross_entropy", ignore = 255 }'), "ignore is 255, targets are all 255, and none of "
        .. "them counts")
end)

add("a program takes the ignored value and no other one", function(t, formats)
    write_all(formats)
    local programs = formats.programs
    local p = programs.build("ignore_files", SPEC:format("above", "above", '{ "cross_entropy", ignore = 255 }',
        METRICS, ""))
    local function train(values, status)
        local folder = t.temp()
        t.equal(t.run { "cp", "-r", programs.folder() .. "/data/above", folder .. "/above" }.status, 0)
        t.write(folder .. "/above/above.npy", formats.npy("|u1", "B", { ROWS, 2 }, values))
        return programs.train(p, { "--data", folder, status = status }).err
    end
    train(masks(1), 0)
    t.contains(train(masks(255, 3), 1), "3 found, expected a whole number in 0..2 or 255")
end)

return tests
