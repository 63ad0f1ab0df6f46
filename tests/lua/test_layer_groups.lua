-- Groups of some layers of a `times`: the bits of the same model with its layers written out, on both targets.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local LAYER = [[residual { linear "up" { 9 }, tanh {}, linear "down" { 8 } }, tanh {}]]

-- The list of a model with a `times` of four layers, or with blocks in its place.
local function layers(rolled)
    if rolled then return ('times(4) "h" { %s }'):format(LAYER) end
    local blocks = {}
    for l = 0, 3 do blocks[l + 1] = ('block "h.%d" { %s }'):format(l, LAYER) end
    return table.concat(blocks, ", ")
end

local function spec(rolled, optimizer, more)
    return ([[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (5)
accumulate (2)
model      { linear "in" { 8 }, %s, linear "out" { 3 } }
loss       "cross_entropy"
optimizer  { %s }
train      { updates = 6, seed = 3 }
%s]]):format(layers(rolled), optimizer, more or "")
end

-- Trains both forms of the model, and the first on both targets: the dumps of all must be the same. Returns the
-- programs module, the program with `times` and its dump.
local function compare(t, name, optimizer, more, how)
    local programs = t.load("tests/lua/programs.lua")(t)
    local rolled = programs.build("layer_groups_" .. name, spec(true, optimizer, more), how)
    local written = programs.build("layer_groups_written_" .. name, spec(false, optimizer, more))
    local dump = programs.dump(rolled, {})
    programs.close(dump, programs.dump(written, {}), 0)
    return programs, rolled, dump
end

-- The same on the device.
local function compare_device(t, name, optimizer, more)
    local programs = t.load("tests/lua/programs.lua")(t)
    local _, environment = t.load("tests/lua/devices.lua").open(t)
    local dumps = {}
    for i, rolled in ipairs { true, false } do
        local program = programs.build(("layer_groups_cuda_%s%d"):format(name, i),
            spec(rolled, optimizer, (more or "") .. 'target "cuda"\n'))
        dumps[i] = programs.dump(program, { env = environment() })
    end
    programs.close(dumps[1], dumps[2], 0)
end

local MIXED = [["adamw", lr = 0.02, weight_decay = 0.1, ema = 0.9, groups = { { "h.0.*", lr_scale = 0.1 },
    { "h.2.up.*", weight_decay = 0, lr_scale = 3 }, { "*.bias", betas = { 0.8, 0.9 } }, { "out.*", eps = 1e-3 } }]]
local CLIPPED = "clip { 0.05, per_group = true }\n"

add("rates, decay and betas of some layers, clipped by group", function(t)
    compare(t, "mixed", MIXED, CLIPPED)
    compare_device(t, "mixed", MIXED, CLIPPED)
end)

-- Rules with sums over tensors, with factors and for matrices; muon and adafactor have states of their own form.
local RULES = {
    { "lamb", '"lamb", lr = 0.02, weight_decay = 0.1' }, { "adafactor", '"adafactor", lr = 0.02', "on the device too" },
    { "muon", '"muon", lr = 0.02, momentum = 0.9, rest = { "adamw", lr = 0.01 }' },
}

for _, rule in ipairs(RULES) do
    add(rule[1] .. ": a rate of two layers in the middle", function(t)
        local optimizer = rule[2] .. ', groups = { { "h.1.*", lr_scale = 0.5 }, { "h.2.up.*", lr_scale = 0.5 }, '
            .. '{ "h.3.down.bias", lr_scale = 4 } }'
        compare(t, rule[1], optimizer)
        if rule[3] then compare_device(t, rule[1], optimizer) end
    end)
end

-- Depths: in 0, h.0 to h.3 1 to 4, out 5; the rate of each is half that of the next.
add("layer_decay and a scale of one layer equal groups with written rates", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local written = '{ "in.*", lr_scale = 1/32 }, { "h.0.*", lr_scale = 1/16 }, { "h.1.*", lr_scale = 1/8 }, '
        .. '{ "h.2.*", lr_scale = 1/2 }, { "h.3.*", lr_scale = 1/2 }'
    for _, rule in ipairs { "adamw", "lamb" } do
        local flat = programs.build("layer_groups_rates_" .. rule,
            spec(false, ('"%s", lr = 0.5, groups = { %s }'):format(rule, written)))
        local rolled = programs.build("layer_groups_decay_" .. rule,
            spec(true, ('"%s", lr = 0.5, layer_decay = 0.5, groups = { { "h.2.*", lr_scale = 2 } }'):format(rule)))
        programs.close(programs.dump(rolled, {}), programs.dump(flat, {}), 1e-6)
    end
end)

add("the plan has a row for each run of layers with one group", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = { name = "layer_groups_mixed", spec = programs.folder() .. "/layer_groups_plan.lua" }
    t.write(p.spec, spec(true, MIXED))
    local found = {}
    for _, row in ipairs(programs.plan(p).parameters) do
        if row.name == "h.%d.up.weight" then
            found[#found + 1] = { row.first, row.count, row.group, row.offset // 1 }
        end
    end
    t.equal(found, { { 0, 1, 1, 48 }, { 1, 1, 0, 240 }, { 2, 1, 2, 432 }, { 3, 1, 0, 624 } })
end)

return tests
