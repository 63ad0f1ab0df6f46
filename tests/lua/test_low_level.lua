-- Cases of Colossal-AI's tests/test_zero/test_low_level (test_grad_acc.py, test_zero1_2.py), for two ranks: sizes that no
-- number of ranks divides, a layer that the loss does not depend on, modes against each other. Bits, where theirs are
-- bits or a tolerance; where sums have another order, f64 within 1e-12 and f32 closer than their 1.3e-6 and 1e-5.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local RANKS, ROWS = 2, 48

-- 123 inputs and a class of 512 in each row.
local function write_rows(t, programs)
    local path = programs.folder() .. "/data/low_level.csv"
    if host.exists(path) then return end
    local lines = {}
    for i = 1, ROWS do
        local row = {}
        for k = 1, 123 do row[k] = ("%.3f"):format(math.sin(i * k) + math.cos(7 * i + k)) end
        row[124] = i * 37 % 512
        lines[i] = table.concat(row, ",")
    end
    t.write(path, table.concat(lines, "\n") .. "\n")
end

local ADAM, SGD = '{ "adam", lr = 1 }', '{ "sgd", lr = 1 }'

-- The layer "drop" is applied, and nothing reads its result. case: rows, a, optimizer, precision, mode (nil: one rank).
local function build(t, case)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_rows(t, programs)
    local text = ([[
data       { "csv", train = "low_level.csv", target = "last", shuffle = false }
batch      (%d)
accumulate (%d)
model      (function(batch)
    local x = relu {} (linear "linear1" { 253 } (batch.input))
    linear "drop" { 253 } (x)
    return linear "linear2" { 512 } (x)
end)
loss       "cross_entropy"
clip       (1.0)
optimizer  %s
precision  %q
train      { updates = 2, seed = 3 }
%s]]):format(case.rows, case.a, case.optimizer or SGD, case.precision, case.mode
        and ('parallel { %q%s }\n'):format(case.mode, case.mode ~= "zero3" and ', bucket = "100KiB"' or "") or "")
    return programs, programs.build("low_level_" .. host.sha256(text):sub(1, 12), text,
        { comm = case.mode and "mpi" or nil })
end

local function dump(t, case, cycles)
    local programs, p = build(t, case)
    return programs.dump(p, { ranks = case.mode and RANKS or nil, "--threads", 1, "--cycles", cycles or 2 }), programs
end

local FILES = { "parameters", "gradients" }

for _, precision in ipairs { "f32", "bf16", "f16" } do
    for _, mode in ipairs { "zero1", "zero2" } do
        add(("%s, %s: gradients and parameters of two updates have the bits of ddp"):format(mode, precision), function(t)
            local expected, programs = dump(t, { rows = 3, a = 1, precision = precision, mode = "ddp" })
            programs.identical(dump(t, { rows = 3, a = 1, precision = precision, mode = mode }), expected, FILES)
        end)
    end
end

-- The gradients that the ranks have inside a cycle, which a checkpoint keeps: their bits.
add("zero1: gradients of two micro-steps of three have the bits of ddp, and so have the parameters", function(t)
    local found = {}
    for _, mode in ipairs { "ddp", "zero1" } do
        local programs, p = build(t, { rows = 3, a = 3, optimizer = ADAM, precision = "f32", mode = mode })
        local folder = t.temp()
        programs.train(p, { ranks = RANKS, "--threads", 1, "--stop-micro", 2, "--checkpoint", folder, status = 75 })
        found[mode] = programs.dump(p, { ranks = RANKS, "--threads", 1, "--cycles", 2 })
        for rank = 1, RANKS do
            local name = ("gradient-%dof%d"):format(rank, RANKS)
            found[mode .. name] = host.read(("%s/cycle-000000000-r2/%s.safetensors"):format(folder, name))
            assert(found[mode .. name] == found["ddp" .. name], name .. ": other bits")
        end
    end
    t.load("tests/lua/programs.lua")(t).identical(found.zero1, found.ddp, { "parameters", "gradients", "state" })
end)

-- One sums the micro-steps of a rank, then over the ranks; the other sums over the ranks in each micro-step.
add("zero1 against zero2: gradients and parameters after two micro-steps", function(t)
    for precision, bound in next, { f64 = 1e-12, f32 = 1e-6 } do
        local one, programs = dump(t, { rows = 3, a = 2, precision = precision, mode = "zero1" })
        programs.close(dump(t, { rows = 3, a = 2, precision = precision, mode = "zero2" }), one, bound, FILES)
    end
end)

add("zero1 against zero2 with adam of rate 1: parameters and state after two micro-steps", function(t)
    local one, programs = dump(t, { rows = 3, a = 2, precision = "f64", optimizer = ADAM, mode = "zero1" })
    programs.close(dump(t, { rows = 3, a = 2, precision = "f64", optimizer = ADAM, mode = "zero2" }), one, 1e-12,
        { "parameters", "gradients", "state" })
end)

for _, mode in ipairs { "ddp", "zero1", "zero2", "zero3" } do
    add(mode .. ": micro-steps on two ranks are one large batch of one", function(t)
        for precision, bound in next, { f64 = 1e-12, f32 = 1e-6 } do
            local one, programs = dump(t, { rows = 12, a = 1, precision = precision })
            programs.close(dump(t, { rows = 3, a = 2, precision = precision, mode = mode }), one, bound, FILES)
        end
    end)
    add(mode .. ": a layer that the loss does not depend on stays as it was", function(t)
        local programs, p = build(t, { rows = 3, a = 2, optimizer = ADAM, precision = "f64", mode = mode })
        local initial = t.temp() .. "/initial.safetensors"
        programs.train(p, { ranks = RANKS, "--save-init", initial })
        local after = programs.dump(p, { ranks = RANKS, "--threads", 1, "--cycles", 2 }) .. "/parameters.safetensors"
        local first, last = programs.tensors(initial), programs.tensors(after)
        t.equal(last["drop.weight"], first["drop.weight"])
        t.equal({ #last["drop.weight"].values, #last["drop.bias"].values }, { 253 * 253, 253 })
        for _, name in ipairs { "linear1.weight", "linear2.weight" } do
            assert(last[name].values[1] ~= first[name].values[1], name .. " has not changed")
        end
    end)
end

return tests
