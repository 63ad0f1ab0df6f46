-- The specs of docs/GUIDE.md, as they stand there: a text of one's own, PyTorch's MNIST network, nanoGPT's letters of
-- Shakespeare, the flags of a Trainer, a booster's. Each is valid without a warning, has the parameters that it should
-- have, and trains, shortened.
local tests = {}

local SPECS = {
    -- data: a folder of GAGEN_DATA; classes, to which the first loss belongs; sets: what a shortened run replaces
    sums = { parameters = 104333, classes = 13, sets = { "batch=8" } },
    mnist_cnn = { data = "mnist", parameters = 1199882, classes = 10, sets = { "batch=8", "eval.batches=1" } },
    shakespeare_char = { data = "tinyshakespeare", parameters = 10745088, classes = 65,
        sets = { "batch=1", "eval.batches=1" } },
    trainer = { parameters = 4810, classes = 10, sets = { 'parallel.mode="none"', "parallel.ranks=1" } },
    colossal = { parameters = 4810, classes = 10, sets = { 'parallel.mode="none"', "parallel.ranks=1" } },
}

local function spec_of(t, name)
    local walk = t.load "tests/lua/walk.lua"
    for _, step in ipairs((walk.read("docs/GUIDE.md", assert(host.read "docs/GUIDE.md")))) do
        if step.kind == "file" and step.name == name .. ".lua" then return step.text end
    end
    error("docs/GUIDE.md has no spec " .. name)
end

-- The folder of the spec's data, made of what is shipped; with `data` that of GAGEN_DATA.
local function data_of(t, folder, data)
    local root = t.environment "GAGEN_DATA"
    if data then
        if not root or host.exists(root .. "/" .. data) ~= "folder" then t.not_run("GAGEN_DATA has no " .. data) end
        return root:sub(1, 1) == "/" and root or t.root .. "/" .. root
    end
    assert(host.folder(folder .. "/data"))
    assert(host.link(t.root .. "/specs/data/digits", folder .. "/data/digits"))
    local sums = {}
    for i = 0, 9999 do sums[#sums + 1] = ("%02d+%02d=%03d\n"):format(i // 100, i % 100, i // 100 + i % 100) end
    t.write(folder .. "/data/sums.txt", table.concat(sums))
    return t.root .. "/" .. folder .. "/data"
end

local function trains(t, name, spec)
    local programs, json = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/json.lua")
    local place = t.temp()
    local path, folder = ("%s/%s.lua"):format(place, name), place .. "/" .. name
    t.write(path, spec_of(t, name))
    local env = { "GAGEN_DATA=" .. data_of(t, place, spec.data) }
    local plan = programs.gagen { "plan", "--json", path, env = env }
    t.equal(plan.status, 0, plan.err)
    assert(not plan.err:find "warning", plan.err)
    t.equal(json.read(plan.out).totals.parameters, spec.parameters)
    local command = { path, "-o", folder, env = env }
    for _, value in ipairs(spec.sets) do table.move({ "--set", value }, 1, 2, #command + 1, command) end
    local made = programs.gagen(command)
    t.equal(made.status, 0, made.err)
    programs.compile(folder, { level = "-O1" })
    local events = programs.events({ train = folder .. "/train" }, { "--cycles", 1, env = env })
    local first, last = events[2], events[#events]
    t.equal({ first.event, last.event, last.reason, last.update }, { "update", "end", "done", 1 })
    t.near(first.loss, math.log(spec.classes), 0.5)
end

for _, name in ipairs { "sums", "mnist_cnn", "shakespeare_char", "trainer", "colossal" } do
    tests[#tests + 1] = { name .. ": the original's parameters, no warning, trains", function(t)
        trains(t, name, SPECS[name])
    end }
end

return tests
