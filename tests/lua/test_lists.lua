-- Rules of optimizers, precisions, batchnorm and targets where gradients are reduced over lists of ranks: to the bit what the ranks
-- of a list compute without the others. Handlers against their formulas are in test_handlers.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local RANKS, ROWS = 4, 3
local LISTS = 'parallel { "ddp", ranks = 4, groups = { ep = { { 0, 1 }, { 2, 3 } } }, handlers = { { "moe", group = "ep" } } }'

-- { the name, words of the spec, a layer of its model }
local RULES = {
    { "lamb, bf16", 'optimizer { "lamb", lr = 1e-2 }\nprecision "bf16"' },
    { "adafactor, f16", 'optimizer { "adafactor", lr = 1e-2 }\nprecision "f16"\nscaler { static = 16384 }' },
    { "muon, f32", 'optimizer { "muon", lr = 1e-2, rest = { "adamw", lr = 1e-3 } }' },
    { "adamw, bf16, on a device", 'optimizer { "adamw", lr = 1e-2 }\nprecision "bf16"\ntarget "cuda"', cuda = true },
    { "batchnorm, averages, f64", 'optimizer { "adamw", lr = 1e-2, ema = 0.9 }\nprecision "f64"',
        'batchnorm "bn" { running = "cycle" }, ' },
}

-- Rows of two cycles of two micro-steps of all ranks; ranks: those whose micro-batches come first, nil: in their order.
local function write_list(t, path, ranks)
    local lines, others = {}, {}
    for i = 0, 2 * 2 * RANKS * ROWS - 1 do
        local rank = i // ROWS % RANKS
        local list = ranks and rank ~= ranks[1] and rank ~= ranks[2] and others or lines
        list[#list + 1] = ("%d,%d,%d,%d,%d\n"):format(i * 7 % 10, i * i % 9, i % 8, i * 3 % 7, i % 3)
    end
    t.write(path .. "/handlers_list.csv", table.concat(lines) .. table.concat(others))
end

-- The dump of two cycles; the rows lie in `folder`.
local function trained_list(t, rule, ranks, folder, parallel)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_list(t, programs.folder() .. "/data")
    local text = table.concat({
        'data { "csv", train = "handlers_list.csv", target = "last", scale = 1/10, shuffle = false }',
        ("batch (%d)\naccumulate (2)"):format(ROWS), ('model { linear "in" { 6, bias = false }, %stanh {}, times(3) "h" '
        .. '{ residual { linear "up" { 6 }, tanh {}, linear "mix" { 6 } } }, linear "head" { 3 } }'):format(rule[3] or ""),
        'loss "cross_entropy"', rule[2], "train { updates = 50, seed = 7 }", parallel }, "\n")
    local p = programs.build("handlers_list_" .. host.sha256(text):sub(1, 8), text, not rule.cuda and { comm = "mpi" }
        or nil)
    local o = { "--cycles", 2, "--data", folder }
    if rule.cuda then
        local _, environment = devices.open(t)
        o.before, o.env = { t.root .. "/tests/device/ranks", tostring(ranks) }, environment()
    else
        o.ranks = ranks
        table.move({ "--threads", 1 }, 1, 2, #o + 1, o)
    end
    return programs.dump(p, o), programs
end

-- Where all parameters belong to the lists of a group, the ranks of a list train as if they were all. The scale of f16 is
-- such that no gradient comes near its smallest numbers, as the mean over the list comes in the update alone. Running
-- statistics are collected from all ranks.
for _, rule in ipairs(RULES) do
    add("the ranks of a list train as if they were all: " .. rule[1], function(t)
        if rule.cuda then devices.needs_library(t) end
        local all = t.temp()
        write_list(t, all)
        local many, programs = trained_list(t, rule, RANKS, all, LISTS)
        local first = programs.tensors(many .. "/parameters-1of4.safetensors")
        for i, ranks in ipairs { { 0, 1 }, { 2, 3 } } do
            local alone = t.temp()
            write_list(t, alone, ranks)
            local one = trained_list(t, rule, 2, alone, 'parallel "ddp"')
            for _, rank in ipairs(ranks) do
                local found = programs.tensors(("%s/parameters-%dof4.safetensors"):format(many, rank + 1))
                for name, tensor in next, programs.tensors(one .. "/parameters.safetensors") do
                    local same = found[name].bytes == (name:find "running" and first[name] or tensor).bytes
                    t.equal(same, true, ("%s of rank %d, list %d"):format(name, rank, i))
                end
            end
        end
    end)
end

return tests
