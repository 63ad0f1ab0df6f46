-- A checkpoint belongs to no target: ranks of one resume those of the other, in other modes and numbers, behind a
-- cycle and inside one. They save it again byte for byte, and go on to the numbers of a run of the C target that never
-- stopped.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local devices = dofile "tests/lua/devices.lua"

-- 12 micro-batches of a row are a cycle, of 12, 6 or 4 micro-steps.
local MICROS, CYCLES = 12, 4
local STOPS = { { "behind a cycle", 2 * MICROS }, { "inside a cycle", 5 * MICROS // 2 } }

local SPEC = [[
name       "looped"
data       { "csv", train = "tiny.csv", target = "last" }
batch      { 1, global = %d }
model      { linear "fc1" { 17 }, tanh {}, linear "fc2" { 9, bias = false }, tanh {}, linear "fc3" { 3 } }
loss       "cross_entropy"
optimizer  %s
train      { updates = 40, seed = 3 }
precision  "f64"
target     %q
parallel   { %q%s }
]]

local OPTIMIZERS = {
    adafactor = '{ "adafactor", lr = 1e-2, ema = 0.9 }',
    lamb = '{ "lamb", lr = 1e-2, weight_decay = 0.1 }',
    adamw = '{ "adamw", lr = 1e-2, ema = 0.9 }',
}

-- The program that writes a checkpoint, and the one that resumes it: target, mode, ranks.
local CASES = {
    { { "c", "zero1", 2 }, { "cuda", "zero2", 3 } },
    { { "cuda", "ddp", 2 }, { "c", "zero1", 3 } },
    { { "cuda", "zero2", 3 }, { "c", "none", 1 } },
    { { "c", "zero3", 2 }, { "cuda", "zero3", 3 } },
    { { "cuda", "zero3", 3 }, { "c", "zero1", 2 } },
}

local function name_of(c) return ("%s, %s of %d"):format(c[1], c[2], c[3]) end

local TRAINS = "    const int code = train(m, o, e);\n"
local SAVES_FIRST = [[
    if (getenv("SAVE_AGAIN")) {
        GA_TRY(looped_model_save(m, e));
        return DONE;
    }
]]

-- A program of this target, mode and number of ranks that saves at its start, before it trains, if SAVE_AGAIN is set.
local function build(t, programs, c, optimizer)
    local parts = c[2] ~= "none"
    local path = ("%s/resume_cuda_%s_%s_%d.lua"):format(programs.folder(), c[1], c[2], c[3])
    local folder = t.temp() .. "/program"
    t.write(path, SPEC:format(MICROS, OPTIMIZERS[optimizer], c[1], c[2], (parts and c[2] ~= "zero3"
        and ', bucket = "1KiB"' or "") .. (parts and (", ranks = %d"):format(c[3]) or "")))
    local made = programs.gagen { path, "-o", folder }
    t.equal(made.status, 0, made.err)
    local text = host.read(folder .. "/main.c")
    local at = assert(text:find(TRAINS, 1, true), "main.c trains elsewhere")
    t.write(folder .. "/main.c", "#include <stdlib.h>\n" .. text:sub(1, at - 1) .. SAVES_FIRST .. text:sub(at))
    programs.compile(folder, { comm = c[1] == "c" and parts and "mpi" or nil })
    return { name = name_of(c), train = t.root .. "/" .. folder .. "/train" }
end

-- Options of a run on these ranks. env: a setting of it.
local function options(t, c, environment, more, env)
    local o = { "--cycles", CYCLES, env = { "GAGEN_TIMEOUT=300" } }
    if c[1] == "cuda" then
        o.env, o.before = environment(), { t.root .. "/tests/device/ranks", tostring(c[3]) }
    elseif c[2] ~= "none" then
        o.ranks = c[3]
    end
    o.env[#o.env + 1] = env
    return table.move(more, 1, #more, #o + 1, o)
end

-- The newest checkpoint in a folder.
local function newest(folder)
    local list = host.list(folder)
    return folder .. "/" .. list[#list]
end

-- Sums inside a cycle are not compared: each rank writes its own.
local function same_tensors(folder, other, what)
    for _, name in ipairs { "/model.safetensors", "/optimizer.safetensors" } do
        if host.read(folder .. name) ~= assert(host.read(other .. name)) then
            error(("%s: other bytes in %s"):format(what, name), 0)
        end
    end
end

local function crosses(t, optimizer, stop, writer, reader)
    if devices.gpus(t) > 0 and devices.gpus(t) < 3 then t.not_run "three GPUs are needed" end
    local programs, environment = devices.open(t)
    local built = { [writer] = build(t, programs, writer, optimizer), [reader] = build(t, programs, reader, optimizer) }
    local oracle = writer[1] == "c" and writer or reader
    local what = ("%s, resumed by %s"):format(name_of(writer), name_of(reader))

    local written, again = t.temp(), t.temp()
    local first = options(t, writer, environment, { "--stop-micro", stop // writer[3], "--checkpoint", written })
    first.status = 75
    programs.train(built[writer], first)
    local path = newest(written)
    programs.train(built[reader], options(t, reader, environment, { "--resume", path, "--checkpoint", again },
        "SAVE_AGAIN=1"))
    same_tensors(path, newest(again), what)

    local expected = programs.dump(built[oracle], options(t, oracle, environment, {}))
    local found = programs.dump(built[reader], options(t, reader, environment, { "--resume", path }))
    for _, file in ipairs { "parameters", "state" } do
        local worst, where = programs.difference(("%s/%s.safetensors"):format(found, file),
            ("%s/%s.safetensors"):format(expected, file))
        assert(worst <= 1e-12, ("%s: %s of %s differs by %.3g"):format(what, where, file, worst))
    end
end

-- Rules that divide every bucket equally, and rules that need whole tensors.
local OFTEN = { ["adamw, inside a cycle"] = true, ["adafactor, behind a cycle"] = true }

for _, optimizer in ipairs { "adamw", "adafactor", "lamb" } do
    for _, stop in ipairs(STOPS) do
        local when = ("%s, %s"):format(optimizer, stop[1])
        for _, case in ipairs(CASES) do
            add(("%s: %s, resumed by %s"):format(when, name_of(case[1]), name_of(case[2])), function(t)
                if not OFTEN[when] then t.long() end
                crosses(t, optimizer, stop[2], case[1], case[2])
            end)
        end
    end
end

return tests
