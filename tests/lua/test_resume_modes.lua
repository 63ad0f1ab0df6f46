-- A checkpoint belongs to no mode of parallel and to no number of ranks: each combination loads the checkpoints of all
-- others, saves them again byte for byte, and ends a cycle that another one began.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- === combinations of a mode and a number of ranks =================================================

-- All of them, or as many as meet each pair of two modes in both directions. "owner": zero3 whose chunks belong to one
-- rank each.
local function combinations(t)
    if not t.all then return { { "none", 1 }, { "ddp", 2 }, { "zero1", 4 }, { "zero2", 3 }, { "zero2", 1 },
        { "zero3", 4 }, { "owner", 3 } } end
    local list = { { "none", 1 } }
    for _, mode in ipairs { "ddp", "zero1", "zero2", "zero3", "owner" } do
        for ranks = 1, 4 do list[#list + 1] = { mode, ranks } end
    end
    return list
end

-- The word parallel of a mode; small buckets, where it has some.
local function parallel(mode, more)
    local own = ({ none = "", zero3 = "", owner = ', enable_distributed_storage = "owner"' })[mode]
    return ('parallel { %q%s%s }\n'):format(mode == "owner" and "zero3" or mode, own or ', bucket = "1KiB"', more or "")
end

local function name_of(c) return ("%s of %d"):format(c[1], c[2]) end

local function spec(batch, optimizer, more)
    return ([[
name       "looped"
data       { "csv", train = "tiny.csv", target = "last" }
%s
model      { linear "fc1" { 17 }, tanh {}, linear "fc2" { 9, bias = false }, tanh {}, linear "fc3" { 3 } }
loss       "cross_entropy"
optimizer  %s
train      { updates = 40, seed = 3 }
%s]]):format(batch, optimizer, more)
end

-- === whole cycles: the bytes ======================================================================

local OPTIMIZERS = {
    adamw = '{ "adamw", lr = 1e-2, ema = 0.9 }',
    muon = '{ "muon", lr = 1e-2, rest = { "adafactor", lr = 1e-3 } }',
    adafactor = '{ "adafactor", lr = 1e-2, ema = 0.9 }',
}

-- The driver of a mode's library, for any number of ranks.
local function driver(t, programs, mode, optimizer)
    local text = spec("batch (3)\naccumulate (2)", OPTIMIZERS[optimizer],
        parallel(mode))
    local p = programs.build(("resume_%s_%s"):format(mode, optimizer), text,
        { lib = true, comm = mode ~= "none" and "mpi" or nil })
    local path = p.folder .. "/save_again"
    local made = t.run { mode == "none" and "cc" or "mpicc", "-Wall", "-Wextra", "-Werror", "-std=gnu11",
        "-I" .. p.folder, "-o", path, "tests/e2e/save_again.c", p.folder .. "/liblooped.a", "-ljansson", "-lz", "-lm",
        "-pthread" }
    t.equal(made.status, 0, made.err)
    return path
end

local function drive(t, programs, c, path, arguments)
    local command = c[1] == "none" and {} or t.mpirun(c[2])
    command[#command + 1] = path
    table.move(arguments, 1, #arguments, #command + 1, command)
    command.env = { "GAGEN_TIMEOUT=300", ("GAGEN_DATA=%s/%s/data"):format(t.root, programs.folder()) }
    local result = t.run(command)
    t.equal(result.status, 0, name_of(c) .. ": " .. result.err)
end

local function checkpoint(folder, cycles) return ("%s/cycle-%09d"):format(folder, cycles) end

-- Each trains another number of cycles, so that a load that changes nothing is noticed.
local function cycles_of(i) return 2 + i end

local function check_bytes(t, optimizer)
    local programs, list, paths, folders = t.load("tests/lua/programs.lua")(t), combinations(t), {}, {}
    for i, c in ipairs(list) do
        paths[c[1]] = paths[c[1]] or driver(t, programs, c[1], optimizer)
        folders[i] = t.temp()
        drive(t, programs, c, paths[c[1]], { tostring(cycles_of(i)), folders[i] })
    end
    for i, c in ipairs(list) do
        local arguments, again = { "load" }, {}
        for k = 1, #list do
            again[k] = t.temp()
            table.move({ checkpoint(folders[k], cycles_of(k)), again[k] }, 1, 2, #arguments + 1, arguments)
        end
        drive(t, programs, c, paths[c[1]], arguments)
        for k, from in ipairs(list) do
            for _, file in ipairs { "model", "optimizer" } do
                local name = ("/%s.safetensors"):format(file)
                if host.read(checkpoint(again[k], cycles_of(k)) .. name)
                    ~= host.read(checkpoint(folders[k], cycles_of(k)) .. name) then
                    error(("%s of %s, saved by %s: other bytes"):format(file, name_of(from), name_of(c)), 0)
                end
            end
        end
    end
end

for _, optimizer in ipairs { "adamw", "muon", "adafactor" } do
    add(("a checkpoint of any mode and ranks is saved again by any other: %s"):format(optimizer), function(t)
        -- muon has adafactor for the rest; the states of adamw go from mode to mode in the test of a cycle
        if optimizer ~= "muon" then t.long() end
        check_bytes(t, optimizer)
    end)
end

-- === inside a cycle: the sums =====================================================================

-- 24 micro-batches of a row are a cycle, of 24, 12, 8 or 6 micro-steps; all ranks have done half of the second one.
local MICROS, STOP, CYCLES = 24, 36, 3

local function program(programs, c)
    local batch = ("batch { 1, global = %d }"):format(MICROS)
    local text = spec(batch, OPTIMIZERS.adamw, 'precision "f64"\n'
        .. parallel(c[1], c[1] ~= "none" and (", ranks = %d"):format(c[2])))
    return programs.build(("resume_%s_%d"):format(c[1], c[2]), text, { comm = c[1] ~= "none" and "mpi" or nil })
end

-- Options of a run of this combination.
local function options(c, more)
    local o = { ranks = c[1] ~= "none" and c[2] or nil, "--cycles", CYCLES, "--threads", 1 }
    return table.move(more, 1, #more, #o + 1, o)
end

-- With make test-all each combination ends the cycles of all, else its own and that of the one before.
add("a cycle that any mode and ranks began is ended by any other", function(t)
    local programs, list, built, straight, stopped = t.load("tests/lua/programs.lua")(t), combinations(t), {}, {}, {}
    for i, c in ipairs(list) do
        built[i], stopped[i] = program(programs, c), t.temp()
        straight[i] = programs.dump(built[i], options(c, {}))
        local first = options(c, { "--stop-micro", STOP // c[2], "--checkpoint", stopped[i] })
        first.status = 75
        programs.train(built[i], first)
    end
    local function ends(i, c, k, from)
        local path = ("%s/cycle-000000001-r%d"):format(stopped[k], STOP // from[2] - MICROS // from[2])
        local dump = programs.dump(built[i], options(c, { "--resume", path }))
        if i == k then programs.identical(dump, straight[i], { "parameters", "gradients", "state" }) end
        for _, file in ipairs { "parameters", "state" } do
            local name = ("/%s.safetensors"):format(file)
            local worst, where = programs.difference(dump .. name, straight[i] .. name)
            assert(worst <= 1e-12, ("%s, ended by %s: %s of %s differs by %.3g"):format(name_of(from), name_of(c), where,
                file, worst))
        end
    end
    for i, c in ipairs(list) do
        for k, from in ipairs(list) do
            if t.all or k == i or k % #list + 1 == i then ends(i, c, k, from) end
        end
    end
end)

-- 30 micro-batches an epoch are 7 cycles of one rank, or 3 of two. { ranks first, micro-steps, ranks then, the last cycle }.
add("training ends with the epochs of the spec, whatever ranks it began with", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    for by, words in next, { update = "warmup = 3", epoch = 'by = "epoch"' } do
        local p = programs.build("resume_epochs_" .. by, ([[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (3)
accumulate (4)
model      { linear "fc1" { 8 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
schedule   { "cosine", %s }
train      { epochs = 2 }
parallel   "ddp"
]]):format(words), { comm = "mpi" })
        for _, case in ipairs { { 1, 28, 2, 10 }, { 2, 12, 1, 10 }, { 1, 40, 2, 12 }, { 2, 16, 1, 9 } } do
            local first, micros, ranks, cycles = table.unpack(case)
            local folder, what = t.temp(), ("%s: %d ranks to %d"):format(by, first, ranks)
            programs.train(p, { ranks = first, "--stop-micro", micros, "--checkpoint", folder, status = 75 })
            local events = programs.events(p, { ranks = ranks, "--resume", "latest", "--checkpoint", folder })
            local last
            for _, event in ipairs(events) do last = event.event == "update" and event or last end
            t.equal({ last.cycle, last.epoch }, { cycles, 2 }, what)
            local part = by == "epoch" and 1 / 2 or (cycles - 1 - 3) / (cycles - 3)
            local rate = 1e-2 * (1 + math.cos(math.pi * part)) / 2
            assert(math.abs(last.lr - rate) < 1e-9, ("%s: rate %g, expected %g"):format(what, last.lr, rate))
        end
    end
end)

return tests
