-- Batchnorm's running statistics: their values, their updates, their checkpoints. With groups of rows a result does not
-- depend on the micro-steps of a cycle. Comparison with PyTorch: test_resnet.lua.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local function spec(rows, accumulate, groups, more)
    return ([[
data       { "csv", train = "tiny.csv", eval = "tiny.csv", target = "last", shuffle = false }
batch      (%d)
accumulate (%d)
model      { batchnorm "bn" { momentum = 0.25%s }, tanh {}, linear "fc1" { 6, bias = false },
             batchnorm "bn2" { rows = 5 }, tanh {}, linear "fc2" { 3 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
precision  "f64"
train      { updates = 6, seed = 3, on_nonfinite = "skip" }
%s]]):format(rows, accumulate, groups, more or "")
end

local function build(t, name, ...)
    local programs = t.load("tests/lua/programs.lua")(t)
    return programs, programs.build("batchnorm_" .. name, spec(...))
end

-- Average and unbiased variance of each column of rows first .. first + n - 1 of the data, from 0.
local function columns(programs, first, n)
    local rows = {}
    for line in host.read(programs.folder() .. "/data/tiny.csv"):gmatch("[^\n]+") do
        local row = {}
        for word in line:gmatch("[^,]+") do row[#row + 1] = tonumber(word) end
        rows[#rows + 1] = row
    end
    local means, variances = {}, {}
    for c = 1, 4 do
        local sum, squares = 0, 0
        for r = first + 1, first + n do sum = sum + rows[r][c] end
        for r = first + 1, first + n do squares = squares + (rows[r][c] - sum / n) ^ 2 end
        means[c], variances[c] = sum / n, squares / (n - 1)
    end
    return means, variances
end

local function statistics(programs, p, options)
    local list = programs.tensors(programs.dump(p, options) .. "/parameters.safetensors")
    return list["bn.running_mean"].values, list["bn.running_var"].values, list["bn.num_batches_tracked"].values
end

add("running statistics are updated by each group of rows, in order", function(t)
    for name, case in next, { micro = { 10, 3, "", 10 }, groups = { 10, 3, ", rows = 5", 5 } } do
        local rows, accumulate, groups, size = table.unpack(case)
        local programs, p = build(t, name, rows, accumulate, groups)
        local mean, variance, count = statistics(programs, p, { "--cycles", 2 })
        t.equal(count, { 2 * rows * accumulate / size }, "groups that were seen")
        local means, variances = { 0, 0, 0, 0 }, { 1, 1, 1, 1 }
        for first = 0, 2 * rows * accumulate - 1, size do
            local m, v = columns(programs, first, size)
            for c = 1, 4 do
                means[c], variances[c] = 0.75 * means[c] + 0.25 * m[c], 0.75 * variances[c] + 0.25 * v[c]
            end
        end
        for c = 1, 4 do
            t.near(mean[c], means[c], 1e-14)
            t.near(variance[c], variances[c], 1e-13)
        end
    end
end)

add("with groups of rows a result does not depend on the micro-steps of a cycle", function(t)
    local programs, whole = build(t, "whole", 30, 1, ", rows = 5")
    local straight = programs.dump(whole, {})
    for name, cut in next, { groups = { 10, 3 }, cut = { 5, 6 } } do
        local _, p = build(t, name, cut[1], cut[2], ", rows = 5")
        programs.close(programs.dump(p, {}), straight, 1e-12, { "parameters", "gradients", "state" })
    end
end)

add("an evaluation uses the running statistics and does not change them", function(t)
    local programs, p = build(t, "micro", 10, 3, "")
    local _, measured = build(t, "measured", 10, 3, "", "eval { every = 1 }\n")
    programs.identical(programs.dump(p, {}), programs.dump(measured, {}))
    local losses = {}
    for _, event in ipairs(programs.events(measured, {})) do
        if event.event == "eval" then losses[#losses + 1] = event.loss end
    end
    assert(#losses >= 6 and losses[1] ~= losses[6])
end)

-- Stopped at each of these micro-steps, in any order of threads: the same bits.
local function resumes(t, programs, p, from, to)
    local straight = programs.dump(p, { "--threads", 1 })
    for k = from, to do
        local checkpoint = t.temp()
        programs.train(p, { "--stop-micro", k, "--checkpoint", checkpoint, "--threads", 2, status = 75 })
        programs.identical(programs.dump(p, { "--resume", "latest", "--checkpoint", checkpoint, "--threads", 3 }),
            straight, { "parameters", "gradients", "state" })
    end
end

add("stopped at every micro-step, in any order of threads: the same bits", function(t)
    local programs, p = build(t, "micro", 10, 3, "")
    resumes(t, programs, p, 2, 9)
end)

-- A file of a program's initial values, with other bytes for elements of `tensor` and for the type in its header.
local function start_with(t, programs, p, tensor, value, dtype)
    local start = t.temp() .. "/start.safetensors"
    programs.train(p, { "--cycles", 1, "--save-init", start })
    local text = host.read(start)
    local length = string.unpack("<I8", text)
    local header, body = text:sub(9, 8 + length), text:sub(9 + length)
    local entry = '"' .. tensor:gsub("%p", "%%%0") .. '":{"dtype":"'
    local from, to = header:match(entry .. 'F64","shape":%[[%d,]*%],"data_offsets":%[(%d+),(%d+)%]')
    if dtype then header = header:gsub("(" .. entry .. ")F64", "%1" .. dtype) end
    body = body:sub(1, from) .. value:rep((to - from) // #value) .. body:sub(to + 1)
    t.write(start, string.pack("<I8", #header) .. header .. body)
    return start
end

-- Every gradient is infinite.
local function lost(t, programs, p)
    return start_with(t, programs, p, "fc2.weight", string.pack("<d", 1.7e308))
end

add("a skipped update keeps parameters; the statistics were updated before", function(t)
    local programs, p = build(t, "micro", 10, 3, "")
    local start = lost(t, programs, p)
    local after = programs.tensors(programs.dump(p, { "--cycles", 2, "--init", start }) .. "/parameters.safetensors")
    local before = programs.tensors(start)
    for _, name in ipairs { "fc1.weight", "fc2.weight", "bn.weight", "bn2.bias" } do
        t.equal(after[name].values, before[name].values, name)
    end
    local mean = statistics(programs, p, { "--cycles", 2 })
    t.equal(after["bn.running_mean"].values, mean)
    t.equal(after["bn.num_batches_tracked"].values, { 6.0 })
end)

-- === running = "cycle" ==========================================================================

local CYCLE = ', running = "cycle"'

add("once per cycle: the average and the variance of all its values", function(t)
    for name, case in next, { whole = { 10, 3, CYCLE }, groups = { 10, 3, ", rows = 5" .. CYCLE },
        one = { 30, 1, CYCLE } } do
        local programs, p = build(t, "cycle_" .. name, table.unpack(case))
        local mean, variance, count = statistics(programs, p, { "--cycles", 2, "--threads", 3 })
        t.equal(count, { 2.0 }, "cycles that were seen")
        local means, variances = { 0, 0, 0, 0 }, { 1, 1, 1, 1 }
        for first = 0, 30, 30 do
            local m, v = columns(programs, first, 30)
            for c = 1, 4 do
                means[c], variances[c] = 0.75 * means[c] + 0.25 * m[c], 0.75 * variances[c] + 0.25 * v[c]
            end
        end
        for c = 1, 4 do
            t.near(mean[c], means[c], 1e-14)
            t.near(variance[c], variances[c], 1e-13)
        end
    end
    local programs, once = build(t, "once", 30, 1, "")      -- as torch would with one batch of 30
    local _, cycle = build(t, "cycle_whole", 10, 3, CYCLE)
    local a, b = { statistics(programs, once, { "--cycles", 1 }) }, { statistics(programs, cycle, { "--cycles", 1 }) }
    for k = 1, 2 do
        for c = 1, 4 do t.near(b[k][c], a[k][c], 1e-14) end
    end
end)

-- Layers in a region, a short last cycle (90 rows are two cycles of 40 and one of 10), evaluations between.
local function deep(rows, accumulate, more)
    return ([[
data       { "csv", train = "tiny.csv", eval = "tiny.csv", target = "last", shuffle = false }
batch      (%d)
accumulate { %d, tail = "flush" }
model      { linear "in" { 6, bias = false }, times(2) "h" { batchnorm "bn" { rows = 5, running = "cycle" }, tanh {},
             linear "fc" { 6, bias = false } }, batchnorm "last" { rows = 5, momentum = 0.5, running = "cycle" },
             linear "out" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, momentum = 0.9 }
precision  "f64"
train      { updates = 7, seed = 3 }
eval       { every = 2 }
%s]]):format(rows, accumulate, more or "")
end

add("once per cycle: the same for any number of micro-steps, short cycles too", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local expected = programs.dump(programs.build("batchnorm_deep_c", deep(10, 4)), {})
    local cut = programs.dump(programs.build("batchnorm_deep_cut", deep(5, 8)), { "--threads", 2 })
    programs.close(cut, expected, 1e-12, { "parameters", "gradients", "state" })
    t.equal(programs.tensors(expected .. "/parameters.safetensors")["h.1.bn.num_batches_tracked"].values, { 7.0 })
    t.equal(programs.tensors(expected .. "/gradients.safetensors")["last.running_mean"], nil)
end)

add("once per cycle: stopped at every micro-step, the same bits", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("batchnorm_deep_c", deep(10, 4))
    resumes(t, programs, p, 1, 11)
end)

add("once per cycle: a skipped update keeps the statistics", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, host_program = build(t, "cycle_whole", 10, 3, CYCLE)
    local start = lost(t, programs, host_program)
    local before = programs.tensors(start)
    for _, target in ipairs { "c", "cuda" } do
        local p, env = host_program, nil
        if target == "cuda" then
            p = programs.build("batchnorm_cycle_whole_cuda", spec(10, 3, CYCLE, 'target "cuda"\n'))
            env = select(2, dofile("tests/lua/devices.lua").open(t))()
        end
        local after = programs.tensors(programs.dump(p, { "--cycles", 2, "--init", start, env = env })
            .. "/parameters.safetensors")
        for _, name in ipairs { "running_mean", "running_var", "num_batches_tracked" } do
            t.equal(after["bn." .. name].values, before["bn." .. name].values, name)
        end
        assert(after["bn2.num_batches_tracked"].values[1] == 12, "the other layer moves by each group")
    end
end)

add("once per cycle: a layer that is applied twice is refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/batchnorm_twice.lua"
    t.write(path, (spec(10, 3, ""):gsub("model .-\nloss", [[model(function(batch)
    local norm = batchnorm "bn" { running = "cycle" }
    return linear "out" { 3 } (tanh(norm(norm(batch.input))))
end)
loss]])))
    t.contains(programs.gagen { "check", path }.err, "batchnorm 'bn': running = \"cycle\" of a layer that is applied "
        .. "twice, expected one of its own for each")
end)

add("once per cycle: the CUDA target equals the C target", function(t)
    dofile("tests/lua/devices.lua").same_as_c(t, "batchnorm_deep", deep(10, 4), 1e-11, { light = true })
end)

-- Kernels of a device sum channels in parts, and a node of its own adds each sum of a micro-step to the cycle's.
add("sums with compensation: the CUDA target equals the C target", function(t)
    local text = deep(10, 4):gsub('"cycle"', '"micro"'):gsub('"f64"', '{ "f64", accum = "kahan" }')
    dofile("tests/lua/devices.lua").same_as_c(t, "batchnorm_kahan", text, 1e-11, { light = true })
end)

-- === several ranks ==============================================================================

-- Cycles of 60 and of 30 rows in turn, however they are divided; groups are rows 5 k to 5 k + 4 of the data. "bn" has
-- this kind of running statistics.
local function divided(rows, accumulate, running, more)
    return ([[
data       { "csv", train = "tiny.csv", eval = "tiny.csv", target = "last", shuffle = false }
batch      (%d)
accumulate { %d, tail = "flush" }
model      { batchnorm "bn" { rows = 5, momentum = 0.25, running = "%s" }, tanh {}, linear "in" { 6, bias = false },
             times(2) "h" { batchnorm "bn" { rows = 5, running = "cycle" }, tanh {}, linear "fc" { 6, bias = false } },
             linear "out" { 3 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, momentum = 0.9 }
clip       (0.1)
precision  "f64"
train      { updates = 5, seed = 3, on_nonfinite = "skip" }
eval       { every = 2 }
%s]]):format(rows, accumulate, running, more or "")
end

local DDP = 'parallel "ddp"\n'

-- The program for so many ranks with running = "cycle" in all layers; the one for one rank knows of no others.
local function of_ranks(t, ranks)
    local programs = t.load("tests/lua/programs.lua")(t)
    return programs, programs.build("batchnorm_of_" .. ranks, divided(5, 12 // ranks, "cycle", ranks > 1 and DDP or ""),
        ranks > 1 and { comm = "mpi" } or nil)
end

-- The program for two ranks of which each moves the running statistics of "bn" by its own groups, three a micro-step.
local function own_statistics(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    return programs, programs.build("batchnorm_own", divided(15, 2, "micro", DDP), { comm = "mpi" })
end

-- The losses of the evaluations of a run.
local function evaluated(programs, p, options)
    local losses = {}
    for _, event in ipairs(programs.events(p, options)) do
        if event.event == "eval" then losses[#losses + 1] = event.loss end
    end
    return losses
end

-- The parameters of a dump without the running statistics of "bn", and these.
local function apart(programs, folder)
    local list, own = programs.tensors(folder .. "/parameters.safetensors"), {}
    for _, name in ipairs { "running_mean", "running_var", "num_batches_tracked" } do
        own[name], list["bn." .. name] = list["bn." .. name].values, nil
    end
    return list, own
end

local function all_near(t, found, expected, bound)
    t.equal(#found, #expected)
    for i, value in ipairs(expected) do t.near(found[i], value, bound) end
end

add("ranks, once per cycle: parameters, running statistics and evaluations of one rank", function(t)
    local programs, one = of_ranks(t, 1)
    local expected = t.temp()
    local losses = evaluated(programs, one, { "--dump", expected })
    for ranks = 2, 3 do
        local _, p = of_ranks(t, ranks)
        local folder = t.temp()
        all_near(t, evaluated(programs, p, { ranks = ranks, "--threads", 1, "--dump", folder }), losses, 1e-12)
        programs.close(folder, expected, 1e-12, { "parameters", "state" })
    end
    t.equal(programs.tensors(expected .. "/parameters.safetensors")["h.1.bn.num_batches_tracked"].values, { 5.0 })
end)

-- Sums over ranks are not the averages of one program.
add("ranks, once per cycle: a checkpoint inside a cycle of one program is refused with the reason", function(t)
    local programs, one = of_ranks(t, 1)
    local _, two = of_ranks(t, 2)
    local p, options = { one, two }, { {}, { ranks = 2, "--threads", 1 } }
    for from = 1, 2 do
        local checkpoint, to = t.temp(), 3 - from
        local function run(of, status, ...)
            local o = table.move({ "--checkpoint", checkpoint, ... }, 1, 2 + select("#", ...), #options[of] + 1,
                { ranks = options[of].ranks, status = status, table.unpack(options[of]) })
            return programs.train(p[of], o)
        end
        run(from, 75, "--stop-micro", 4 // from)
        local result = run(to, 1, "--resume", "latest")
        t.contains(result.err, "does not fit the model, nothing loaded: ")
        t.contains(result.err, "which programs with parallel sum up otherwise than those without: use a checkpoint of "
            .. "a whole cycle\n")
    end
end)

-- The first cycle's statistics do not depend on a gradient: not a bit of them may be lost on the way.
add("ranks, once per cycle: statistics travel whole where gradients travel in 16 bits", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function statistics(comm)
        local text = divided(5, 6, "cycle", ('parallel { "ddp", comm = %q }\n'):format(comm)):gsub('"f64"', '"f32"')
        local p = programs.build("batchnorm_comm_" .. comm, text, { comm = "mpi" })
        local folder, list = programs.dump(p, { ranks = 2, "--threads", 1, "--cycles", 1 }), {}
        for name, tensor in next, programs.tensors(folder .. "/parameters.safetensors") do
            if name:find "running" or name:find "batches" then list[name] = tensor.values end
        end
        return list
    end
    local whole = statistics "f32"
    assert(whole["h.1.bn.running_var"])
    t.equal(statistics "bf16", whole)
end)

add("ranks, once per cycle: a skipped update keeps the statistics", function(t)
    local programs, p = of_ranks(t, 2)
    local start = start_with(t, programs, p, "out.weight", string.pack("<d", 1.7e308))
    local after = programs.dump(p, { ranks = 2, "--threads", 1, "--cycles", 2, "--init", start })
    local kept = programs.tensors(after .. "/parameters.safetensors")
    for name, tensor in next, programs.tensors(start) do t.equal(kept[name].values, tensor.values, name) end
end)

add("ranks, once per cycle: stopped inside a cycle, resumed with two and three ranks", function(t)
    local programs, p = of_ranks(t, 2)
    local _, three = of_ranks(t, 3)
    local straight = programs.dump(p, { ranks = 2, "--threads", 1 })
    local function stopped(micro)
        local checkpoint = t.temp()
        programs.train(p, { ranks = 2, "--threads", 1, "--stop-micro", micro, "--checkpoint", checkpoint,
            status = 75 })
        return checkpoint
    end
    for _, case in ipairs { { 2, p, 4, 0 }, { 3, three, 3, 1e-12 } } do
        local ranks, program, micro, bound = table.unpack(case)
        local folder = programs.dump(program, { ranks = ranks, "--threads", 1, "--resume", "latest", "--checkpoint",
            stopped(micro) })
        programs.close(folder, straight, bound, { "parameters", "state" })
    end
    local _, one = of_ranks(t, 1)
    t.contains(programs.train(one, { "--resume", "latest", "--checkpoint", stopped(4), status = 1 }).err,
        "h.0.bn.running_mean")
end)

add("ranks: with running = \"micro\" all use the statistics of rank 0, which its own rows have moved", function(t)
    local programs, p = own_statistics(t)
    local folder, checkpoint = t.temp(), t.temp()
    local losses = evaluated(programs, p, { ranks = 2, "--threads", 1, "--cycles", 4, "--dump", folder, "--checkpoint",
        checkpoint })
    local alone = evaluated(programs, p, { "--resume", "latest", "--checkpoint", checkpoint, "--eval" })
    t.near(losses[#losses], alone[1], 1e-12)
    local list, own = apart(programs, folder)
    local means, variances = { 0, 0, 0, 0 }, { 1, 1, 1, 1 }
    for _, first in ipairs { 0, 30, 60, 0, 30, 60 } do      -- the rows of rank 0: 15 of 30
        for group = first, first + 10, 5 do
            local m, v = columns(programs, group, 5)
            for c = 1, 4 do
                means[c], variances[c] = 0.75 * means[c] + 0.25 * m[c], 0.75 * variances[c] + 0.25 * v[c]
            end
        end
    end
    all_near(t, own.running_mean, means, 1e-13)
    all_near(t, own.running_var, variances, 1e-13)
    t.equal(own.num_batches_tracked, { 18.0 })
    local _, one = of_ranks(t, 1)
    for name, tensor in next, (apart(programs, programs.dump(one, { "--cycles", 4 }))) do
        all_near(t, list[name].values, tensor.values, 1e-12)
    end
end)

-- No evaluation has given those of rank 0 to all before.
add("ranks: a checkpoint has the statistics of rank 0 in every mode", function(t)
    local programs, expected = t.load("tests/lua/programs.lua")(t), nil
    for _, mode in ipairs { "ddp", "zero1", "zero2", "zero3" } do
        local p = programs.build("batchnorm_saved_" .. mode, divided(15, 2, "micro",
            ('parallel "%s" checkpoint { every = 1 }\n'):format(mode)), { comm = "mpi" })
        local folder = t.temp()
        programs.train(p, { ranks = 2, "--threads", 1, "--cycles", 3, "--checkpoint", folder })
        local list = programs.tensors(folder .. "/cycle-000000001/model.safetensors")
        local found = { list["bn.running_mean"].values, list["bn.running_var"].values }
        expected = expected or found
        t.equal(found, expected, mode)
    end
end)

add("ranks: the CUDA target equals the C target", function(t)
    local devices = dofile "tests/lua/devices.lua"
    devices.needs_library(t)
    local programs, p = own_statistics(t)
    local _, environment = devices.open(t)
    local device = programs.build("batchnorm_own_cuda", divided(15, 2, "micro", DDP .. 'target "cuda"\n'))
    local expected, found = t.temp(), t.temp()
    local losses = evaluated(programs, p, { ranks = 2, "--threads", 1, "--dump", expected })
    all_near(t, evaluated(programs, device, { before = { t.root .. "/tests/device/ranks", "2" }, "--dump", found,
        env = environment(devices.checked(1)) }), losses, 1e-11)
    programs.close(found, expected, 1e-11, { "parameters", "state" })
end)

-- The sums for running statistics lie beside the windows, on the host and on a device.
add("ranks that divide gradients: statistics, and a stop inside a cycle", function(t)
    local devices = dofile "tests/lua/devices.lua"
    devices.needs_library(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local parallel = 'parallel { "zero2", bucket = "1KiB" }\n'
    local p = programs.build("batchnorm_windows", divided(5, 3, "cycle", parallel), { comm = "mpi" })
    local ddp = programs.build("batchnorm_whole", divided(5, 3, "cycle", DDP), { comm = "mpi" })
    local expected = programs.dump(ddp, { ranks = 2, "--threads", 1 })
    local whole = programs.dump(p, { ranks = 2, "--threads", 1 })
    programs.close(whole, expected, 1e-12, { "parameters", "state" })
    local folder = t.temp()
    programs.train(p, { ranks = 2, "--threads", 1, "--checkpoint", folder, "--stop-micro", "5", status = 75 })
    programs.identical(programs.dump(p, { ranks = 2, "--threads", 1, "--checkpoint", folder, "--resume", "latest" }),
        whole, { "parameters", "state" })
    local _, environment = devices.open(t)
    local device = programs.build("batchnorm_windows_cuda", divided(5, 3, "cycle", parallel .. 'target "cuda"\n'))
    programs.close(programs.dump(device, { before = { t.root .. "/tests/device/ranks", "2" },
        env = environment(devices.checked(1)) }), expected, 1e-11, { "parameters", "state" })
end)

add("ranks: the shipped specs with batchnorm are planned for ranks", function(t)
    local shipped = dofile "tests/lua/shipped.lua"
    for _, name in ipairs { "resnet18_tutorial", "resnet18_cifar10" } do
        local programs = shipped.open(t, "cifar-10-batches-bin")
        local path = ("%s/%s_ranks.lua"):format(programs.folder(), name)
        t.write(path, shipped.text(t, name))
        local result = programs.gagen { "plan", path, "--set", 'parallel="ddp"' }
        t.equal(result.status, 0, result.err)
    end
end)

add("counters in files of other writers are integers", function(t)
    local programs, p = build(t, "micro", 10, 3, "")
    local start = start_with(t, programs, p, "bn.num_batches_tracked", string.pack("<i8", 41), "I64")
    local _, _, count = statistics(programs, p, { "--cycles", 1, "--init", start })
    t.equal(count, { 44.0 })
end)

add("a message says that accumulation does not enlarge groups", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = t.temp() .. "/warned.lua"
    local function said(...)
        t.write(path, (spec(...):gsub('eval = "tiny.csv", ', "")))
        return programs.gagen { "plan", path, env = { "GAGEN_DATA=" .. programs.folder() .. "/data" } }.err
    end
    t.contains(said(10, 3, ""), "warning: batchnorm 'bn': statistics are those of each "
        .. "micro-batch of 10 rows, not of the 30 rows of an update")
    t.contains(said(10, 1, "", 'parallel { "ddp", ranks = 3 }\n'), "of 10 rows, not of the 30 rows of an update")
    t.equal(said(10, 3, ", rows = 10"), "")
    t.equal(said(10, 1, ""), "")
end)

return tests
