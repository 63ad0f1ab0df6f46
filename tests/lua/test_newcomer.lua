-- Specs written as the documentation says, for what people begin with: PyTorch's MNIST network and nanoGPT's letters of
-- Shakespeare. Each is valid without a warning, has the parameters of the original, and trains, shortened.
local tests = {}

local SPECS = {
    -- parameters; classes, to which the first loss belongs; what a shortened run replaces
    mnist_cnn = { data = "mnist", parameters = 1199882, classes = 10, sets = { "batch=8", "eval.batches=1" } },
    shakespeare_char = { data = "tinyshakespeare", parameters = 10745088, classes = 65,
        sets = { "batch=1", "eval.batches=1" } },
}

local function trains(t, name, spec)
    local programs, json = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/json.lua")
    local root = t.environment "GAGEN_DATA"
    if not root or host.exists(root .. "/" .. spec.data) ~= "folder" then
        t.not_run("GAGEN_DATA has no " .. spec.data)
    end
    if root:sub(1, 1) ~= "/" then root = t.root .. "/" .. root end
    local path, folder = ("tests/e2e/newcomer/%s.lua"):format(name), t.temp() .. "/" .. name
    local env = { "GAGEN_DATA=" .. root }
    local plan = programs.gagen { "plan", "--json", path, env = env }
    t.equal(plan.status, 0, plan.err)
    assert(not plan.err:find "warning", plan.err)
    t.equal(json.read(plan.out).totals.parameters, spec.parameters)
    local command = { path, "-o", folder, env = env }
    for _, value in ipairs(spec.sets) do table.move({ "--set", value }, 1, 2, #command + 1, command) end
    t.equal(programs.gagen(command).status, 0)
    programs.compile(folder, { level = "-O1" })
    local events = programs.events({ train = folder .. "/train" }, { "--cycles", 1, env = env })
    local first, last = events[2], events[#events]
    t.equal({ first.event, last.event, last.reason, last.update }, { "update", "end", "done", 1 })
    t.near(first.loss, math.log(spec.classes), 0.5)
end

for _, name in ipairs { "mnist_cnn", "shakespeare_char" } do
    tests[#tests + 1] = { name .. ": the original's parameters, no warning, trains", function(t)
        trains(t, name, SPECS[name])
    end }
end

return tests
