-- train-probe: dumps have the results of the kernels, the first non-finite value is named, the profile agrees with the
-- plan, and training does not change.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local PROBE = { probe = true }
local VALUES = { probe = true, options = { "--without", "fusion" } }    -- fused values have no probe

local function spec(more)
    return [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 2, of = 5 } }
batch      (4)
accumulate (3)
model      { linear "in" { 12 }, relu {},
             times(3) "h" { residual { linear "fc1" { 20 }, tanh {}, linear "fc2" { 12 } } }, linear "out" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 40, seed = 7 }
]] .. (more or "")
end

local F64 = 'precision "f64"\n'

-- The same program with train-probe in the place of train.
local function with_probes(p) return { name = p.name, spec = p.spec, train = p.probe, folder = p.folder } end

local function each(tensor, f) for i, v in ipairs(tensor.values) do f(i, v) end end

add("training is the same bit for bit with every probe on", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("probe", spec(F64), PROBE)
    local plain = programs.dump(p, { "--cycles", 4, "--threads", 2 })
    local probed = programs.dump(with_probes(p), { "--cycles", 4, "--threads", 2, "--check-finite", "--profile" })
    programs.identical(probed, plain, { "parameters", "gradients", "state" })
end)

add("a dump has the results of each kernel, in every micro-step of the first cycle", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("probe_values", spec(F64), VALUES)
    local folder = programs.dump(with_probes(p), { "--cycles", 1 })
    t.equal(host.exists(folder .. "/micro-3.safetensors"), false)
    local last = programs.tensors(folder .. "/micro-2.safetensors")
    for name, gradient in next, programs.tensors(folder .. "/gradients.safetensors") do
        local probed = assert(last["d_" .. name], "no d_" .. name)
        each(gradient, function(i, v) t.equal(probed.values[i], v, name) end)
    end
    local first = programs.tensors(folder .. "/micro-0.safetensors")
    local differ = false
    for _, step in ipairs { first, last } do
        each(step.relu_out, function(i, v) t.equal(v, math.max(step.in_y.values[i], 0.0), "relu") end)
        for l = 0, 2 do     -- the residual of each layer: its input plus the output of fc2
            local before = l == 0 and step.relu_out or step["h_add_out." .. l - 1]
            each(assert(step["h_add_out." .. l], "no h_add_out." .. l), function(i, v)
                t.equal(v, before.values[i] + step["h_fc2_y." .. l].values[i], "residual " .. l)
            end)
        end
        each(step.d_loss, function(_, v) t.near(v, 1 / 12, 1e-15) end)
    end
    each(first.in_y, function(i, v) differ = differ or v ~= last.in_y.values[i] end)
    t.equal(differ, true, "micro-steps have different rows")
end)

-- Writes a copy of a safetensors file with every value of one F32 tensor replaced.
local function replaced(t, path, name, value)
    local json = t.load("tests/lua/json.lua")
    local text = host.read(path)
    local start = 8 + string.unpack("<I8", text)
    local offsets = json.read(text:sub(9, start))[name].data_offsets
    local bytes = string.pack("<f", value):rep((offsets[2] - offsets[1]) // 4)
    t.write(path, text:sub(1, start + offsets[1]) .. bytes .. text:sub(start + offsets[2] + 1))
end

add("--check-finite names the first tensor, its kernel and the micro-step", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = with_probes(programs.build("probe32_values", spec(), VALUES))
    local start = t.temp() .. "/start.safetensors"
    programs.train(p, { "--cycles", 1, "--check-finite", "--save-init", start })
    replaced(t, start, "h.1.fc2.bias", 3e38)
    local result = programs.train(p, { "--cycles", 2, "--check-finite", "--init", start, "--threads", 2, status = 4 })
    t.match(result.err, "cycle 0, micro%-step 0 %(0 in all%): h_fc1_y.2, element %d+ of 80, is %-?inf: "
        .. "the first value that is not finite; written by h_fc1_forward %(%S+probe32_values.lua:5%)")
    replaced(t, start, "h.1.fc2.bias", 0)
    replaced(t, start, "out.bias", -math.huge)
    result = programs.train(p, { "--eval", "--check-finite", "--init", start, status = 4 })
    t.contains(result.err, "cycle 0, between micro-steps: out_y, element 0 of 40, is -inf")
end)

add("--profile has every kernel of the plan, as often as it runs, longest first", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = with_probes(programs.build("probe32", spec(), PROBE))
    local cycles = 20
    local result = programs.train(p, { "--cycles", cycles, "--profile", "--threads", 1 })
    local rows, before = {}, math.huge
    for name, calls, ms, gflops, gbytes in
        result.out:gmatch("\n([%w_]+) +(%d+) +([%d.]+) +[%d.]+ +(%S+) +(%S+)") do
        assert(tonumber(ms) <= before, name .. ": not sorted")
        before = tonumber(ms)
        rows[name] = { calls = tonumber(calls), ms = before, gflops = tonumber(gflops),
            gbytes = tonumber(gbytes) }
    end
    for _, kernel in ipairs(programs.plan(p).kernels) do
        local row = rows[kernel.name]
        if kernel.calls > 0 then
            t.equal(assert(row, kernel.name).calls % (kernel.calls * cycles), 0, kernel.name)
            if kernel.role ~= "boundary" and row.ms > 0.5 then
                local seconds = row.ms * 1e-3
                t.near(row.gflops, kernel.flops * row.calls / seconds * 1e-9, 0.01 * row.gflops)
                t.near(row.gbytes, kernel.bytes * row.calls / seconds * 1e-9, 0.01 * row.gbytes)
            end
        end
    end
    t.equal(rows.h_fc1_forward.calls, cycles * 3 * 3)
    t.equal(rows.gradient_partials.calls, cycles)
end)

add("a profile that cannot be written is an error", function(t)
    if host.exists "/dev/full" == nil then t.not_run "/dev/full is not there" end
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = with_probes(programs.build("probe32", spec(), PROBE))
    local result = t.shell(("GAGEN_DATA=%s/%s/data %s --profile --cycles 1 --quiet --threads 1 --checkpoint %s > /dev/full")
        :format(t.root, programs.folder(), p.train, t.temp()))
    t.equal(result.status, 3, result.err)
    t.contains(result.err, "standard output: it could not be written whole")
end)

add("train refuses the options of train-probe", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("probe32", spec(), PROBE)
    for _, option in ipairs { "--profile", "--check-finite" } do
        local result = programs.train(p, { option, "--cycles", 1, status = 1 })
        t.contains(result.err, option .. ": train does not have it, train-probe does: make probe")
    end
    local blocked = t.temp() .. "/file"
    t.write(blocked, "")
    local result = programs.train(with_probes(p), { "--dump", blocked .. "/x", "--cycles", 1, status = 1 })
    t.contains(result.err, "the folder cannot be made")
end)

return tests
