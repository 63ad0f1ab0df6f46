-- train --overfit N: the first N micro-batches again and again, without checkpoints.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- 90 rows: 22 micro-batches and 7 cycles of an epoch, whose last micro-batch is dropped.
local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last", shuffle = false }
batch      (4)
accumulate (3)
model      { linear "fc1" { 8 }, tanh {}, dropout { 0.1 }, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 0.05 }
schedule   "cosine"
train      { updates = 60, seed = 1 }
]]

local function start(t, p, o)
    local words = table.move(o, 1, #o, 3, { p.train, "--quiet" })
    words.env = o.env or { "GAGEN_TIMEOUT=300", "GAGEN_DATA" }
    return t.run(words)
end

-- The folder of the dump of a start that makes no run.
local function dump(t, p, o)
    local folder = t.temp()
    local words = { "--dump", folder, "--save-init", folder .. "/init.safetensors" }
    words.env = o.env
    t.equal(start(t, p, table.move(o, 1, #o, #words + 1, words)).status, 0)
    return folder
end

-- A program whose file has the first 16 rows, which are 4 micro-batches, and whose cycles go round in them.
local function few_rows(programs)
    local lines, n = {}, 0
    for line in assert(host.read(programs.folder() .. "/data/tiny.csv")):gmatch "[^\n]+\n" do
        n = n + 1
        if n <= 16 then lines[n] = line end
    end
    assert(n == 90)
    local file = assert(io.open(programs.folder() .. "/data/sixteen.csv", "wb"))
    file:write(table.concat(lines))
    file:close()
    return programs.build("overfit_sixteen", (SPEC:gsub("tiny", "sixteen"):gsub("%(3%)", '{ 3, tail = "carry" }')))
end

add("the bits of a program whose file has these micro-batches only", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("overfit", SPEC)
    local few = dump(t, few_rows(programs), {})
    programs.identical(dump(t, p, { "--overfit", 4 }), few, { "parameters", "state", "gradients" })
    assert(programs.difference(dump(t, p, {}) .. "/parameters.safetensors", few .. "/parameters.safetensors") > 1e-3,
        "--overfit does nothing")
end)

add("on a device the same as on the CPU", function(t)
    local programs, environment = devices.open(t)
    local on_device = programs.build("overfit_cuda", SPEC .. 'target "cuda"\n')
    programs.close(dump(t, on_device, { "--overfit", 4, env = environment() }),
        dump(t, programs.build("overfit", SPEC), { "--overfit", 4 }), 1e-4, { "parameters" })
end)

add("the run says so, has no checkpoints, and --resume latest goes on with an earlier one", function(t)
    local programs, json = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/json.lua")
    local p = programs.build("overfit", SPEC)
    local runs = p.folder .. "/runs"
    t.run { "rm", "-rf", runs }
    t.equal(start(t, p, { "--cycles", 2 }).status, 0)
    t.equal(start(t, p, { "--overfit", 1 }).status, 0)
    t.equal(host.exists(runs .. "/001/checkpoints"), "folder")
    t.equal(host.exists(runs .. "/002/checkpoints"), false)
    local record = json.read(host.read(runs .. "/002/run.json"))
    t.equal({ record.settings.overfit, record.differs }, { "1", { "cycles: 2 -> default", "overfit: default -> 1" } })
    local log = json.lines(host.read(runs .. "/002/log.jsonl"))
    t.equal({ log[1].overfit, log[2].loss > 1, log[61].loss < 0.05, log[62].event }, { 1, true, true, "end" })
    t.equal(json.lines(host.read(runs .. "/001/log.jsonl"))[1].overfit, nil)
    local stopped = start(t, p, { "--overfit", 1, "--stop-micro", 4 })
    t.equal(stopped.status, 75)
    t.contains(stopped.err, "overfit: stopped, and nothing was saved: --overfit keeps no checkpoints\n")
    t.equal(start(t, p, { "--resume", "latest", "--cycles", 3 }).status, 0)
    t.match(host.read(runs .. "/001/log.jsonl"), '"resumed_from":"[^"]*/runs/001/checkpoints/')
end)

add("more micro-batches than an epoch has, and a stream, are refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local many = start(t, programs.build("overfit", SPEC), { "--overfit", 23 })
    t.equal({ many.status, many.err }, { 1, "overfit: --overfit 23: an epoch has 22 micro-batches on each rank, a number "
        .. "from 1 to 22 expected\n" })
    local stream = programs.build("overfit_stream", (SPEC:gsub("shuffle = false", 'eval = "tiny.csv", stream = true')))
    local refused = start(t, stream, { "--overfit", 2 })
    t.equal({ refused.status, refused.err }, { 1, "overfit_stream: --overfit 2: a stream is read forward only: leave "
        .. "stream = true out of the spec's data\n" })
end)

return tests
