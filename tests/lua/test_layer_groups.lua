-- Groups of some layers of a `times`: the bits of the same model with its layers written out, on both targets.
local ordered = require "base.ordered"
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local FILES = { "parameters", "state", "gradients" }
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

-- Trains both forms of the model: their dumps must be the same. Returns the programs module, the program with `times`
-- and its dump.
local function compare(t, name, optimizer, more, how)
    local programs = t.load("tests/lua/programs.lua")(t)
    local rolled = programs.build("layer_groups_" .. name, spec(true, optimizer, more), how)
    local written = programs.build("layer_groups_written_" .. name, spec(false, optimizer, more))
    local dump = programs.dump(rolled, {})
    programs.close(dump, programs.dump(written, {}), 0, FILES)
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
    programs.close(dumps[1], dumps[2], 0, FILES)
end

local MIXED = [["adamw", lr = 0.02, weight_decay = 0.1, ema = 0.9, groups = { { "h.0.*", lr_scale = 0.1 },
    { "h.2.up.*", weight_decay = 0, lr_scale = 3 }, { "*.bias", betas = { 0.8, 0.9 } }, { "out.*", eps = 1e-3 } }]]
local CLIPPED = "clip { 0.05, per_group = true }\n"

local FROZEN = '"adamw", lr = 0.02, groups = { %s, { "h.3.up.*", lr_scale = 3 } }'

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
        if rule[3] and t.all then compare_device(t, rule[1], optimizer) end
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

-- Elements, in multiples of 16: in 256 + 64, a layer 576 + 16 + 576 + 64, out 192 + 16; bytes in pages.
add("frozen layers have no place among gradients and states", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p, bytes = { name = "layer_groups_place", spec = programs.folder() .. "/layer_groups_place.lua" }, {}
    t.write(p.spec, (spec(true, FROZEN:format '{ "h.0.*", frozen = true }, { "h.1.*", frozen = true }')
        :gsub("{ 8 }", "{ 64 }")))
    for _, arena in ipairs(programs.plan(p).arenas) do bytes[arena.name] = arena.bytes end
    local trained = (4 * (320 + 2 * 1232 + 208) + 4095) // 4096 * 4096
    t.equal({ bytes.parameters, bytes.gradients, bytes.state_m, bytes.state_v },
        { (4 * (320 + 4 * 1232 + 208) + 4095) // 4096 * 4096, trained, trained, trained })
end)

add("the plan says which layers are frozen, and why there are several loops", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p, found = { name = "layer_groups_why", spec = programs.folder() .. "/layer_groups_why.lua" }, {}
    t.write(p.spec, spec(true, '"sgd", lr = 0.1, groups = { { "h.0.*", frozen = true }, { "h.1.*", frozen = true } }'))
    for _, row in ipairs(programs.plan(p).parameters) do
        if row.name == "h.%d.down.bias" then found[#found + 1] = { row.first, row.count, row.trainable } end
    end
    t.equal(found, { { 0, 2, false }, { 2, 2, true } })
    local why = programs.gagen { "plan", "--why", p.spec }
    t.contains(why.out, "711 parameters, 389 trained ")
    t.match(why.out, "\n  h +2 loops +groups freeze only some layers")
    assert(not why.out:find("backward_h_0_to_1_up_weight", 1, true), "the plan has gradients of frozen layers")
    t.contains(why.out, "backward_h_2_to_3_up_weight")
end)


for name, globs in ordered.each { first = { "in.*", "h.0.*", "h.1.*" }, later = { "h.0.*", "h.1.*" },
    middle = { "h.1.*", "h.2.up.*" }, last = { "h.2.*", "h.3.*" } } do
    add("frozen layers: " .. name, function(t)
        if name == "last" then t.long() end
        local groups = {}
        for i, glob in ipairs(globs) do groups[i] = ('{ "%s", frozen = true }'):format(glob) end
        local optimizer = FROZEN:format(table.concat(groups, ", "))
        local programs, rolled, dump = compare(t, "frozen_" .. name, optimizer, CLIPPED, { probe = name == "first" })
        if name == "first" then
            local backward = host.read(rolled.folder .. "/step.c"):match "\nstatic void backward.-\n}"
            t.contains(backward, "// h_2_to_3\n")
            assert(not backward:find("h_0_to_1", 1, true), "the backward pass goes on behind the trained layers")
        end
        if name == "middle" and t.all then compare_device(t, "frozen", optimizer) end
        local start = t.temp() .. "/start.safetensors"
        programs.train(rolled, { "--save-init", start, "--cycles", 1 })
        local before, after = programs.tensors(start), programs.tensors(dump .. "/parameters.safetensors")
        for parameter, tensor in next, after do
            local frozen = false
            for _, glob in ipairs(globs) do frozen = frozen or parameter:find(glob:sub(1, -2), 1, true) == 1 end
            t.equal(tensor.bytes == before[parameter].bytes, frozen, parameter)
        end
    end)
end

-- The program is that of the frozen layers "first".
add("probes and gradients call layers by their numbers", function(t)
    local optimizer = FROZEN:format('{ "in.*", frozen = true }, { "h.0.*", frozen = true }, { "h.1.*", frozen = true }')
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("layer_groups_frozen_first", spec(true, optimizer, CLIPPED), { probe = true })
    local folder = programs.dump({ train = p.probe }, { "--cycles", 1 })
    local probed, gradients = programs.tensors(folder .. "/micro-1.safetensors"), {}
    for name, tensor in next, programs.tensors(folder .. "/gradients.safetensors") do
        gradients[#gradients + 1] = name
        t.equal(assert(probed["d_" .. name], "no d_" .. name).bytes, tensor.bytes, name)
    end
    t.equal(#gradients, 10)
    assert(probed["h_0_to_1_tanh_out.1"] and probed["h_2_to_3_tanh_out.2"] and not probed["h_2_to_3_tanh_out.1"])
end)

add("the rest of muon updates some layers", function(t)
    compare(t, "rest", '"muon", lr = 0.02, momentum = 0.9, rest = { "adamw", lr = 0.01 }, '
        .. 'groups = { { "h.0.*", rest = true, eps = 1e-4 }, { "h.3.up.*", lr_scale = 0.5 } }')
end)

-- Rows of ids for bert().
local function write_rows(t, programs)
    local ids, mask, label = {}, {}, {}
    for r = 0, 11 do
        for i = 0, 5 do
            local at, seen = r * 6 + i + 1, i < 3 + r % 4
            ids[at], mask[at] = seen and 1 + (r * 5 + i * i * 3) % 16 or 0, seen and 1 or 0
        end
        label[r + 1] = r % 2
    end
    t.write(programs.folder() .. "/data/layer_groups.safetensors", t.load("tests/numeric/rows.lua").file {
        { "ids", "I32", { 12, 6 }, ids }, { "mask", "I32", { 12, 6 }, mask }, { "label", "I32", { 12 }, label } })
end

-- A small BERT of four layers; o: drop, frozen = the field of the groups of the first layers, more words.
local function bert(rolled, o)
    local text = [[
data       { "tensors", train = "layer_groups.safetensors", target = "label" }
batch      (4)
accumulate (3)
local function layer(batch, x)
    local q, k = linear "query" { 8 } (x), linear "key" { 8 } (x)
    local a = attend { heads = 2, dropout = DROP } (q, k, linear "value" { 8 } (x), batch.mask)
    x = layernorm "norm1" {} (x + dropout(DROP)(linear "dense" { 8 } (a)))
    return layernorm "norm2" {} (x + linear "down" { 8 } (gelu {} (linear "up" { 12 } (x))))
end
model(function(batch)
    local x = positions "bert.embeddings.places" { 6 } (embedding "bert.embeddings.words" { 17, 8 } (batch.ids))
    LAYERS
    return linear "classifier" { 2 } (pick { axis = 2, index = 1 } (x))
end)
loss       "cross_entropy"
optimizer  { "adamw", lr = 0.02, weight_decay = 0.1, groups = { { "bert.embeddings.*", FROZEN },
             { "bert.encoder.layer.0.*", FROZEN }, { "bert.encoder.layer.1.*", FROZEN },
             { rank = 1, weight_decay = 0 } } }
train      { updates = 20 }
MORE]]
    return (text:gsub("%u%u%u+", { DROP = o.drop, FROZEN = o.frozen, MORE = o.more or "", LAYERS = rolled
        and 'x = times(4) "bert.encoder.layer" (function(x) return layer(batch, x) end) (x)'
        or 'for l = 0, 3 do x = block("bert.encoder.layer." .. l)(function(x) return layer(batch, x) end) (x) end' }))
end

add("a small BERT with frozen embeddings and first layers", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local o = { drop = "0", frozen = "frozen = true" }
    write_rows(t, programs)
    local rolled = programs.build("layer_groups_bert", bert(true, o))
    local written = programs.build("layer_groups_bert_written", bert(false, o))
    programs.close(programs.dump(rolled, {}), programs.dump(written, {}), 0, FILES)
    local events, losses = programs.events(rolled, {}), {}
    for _, event in ipairs(events) do losses[#losses + 1] = event.event == "update" and event.loss or nil end
    assert(losses[#losses] < 0.5 * losses[1], "the loss does not fall")
end)

-- With dropout and 16 bits: the loop over all layers with a rate of 0 draws the same.
for _, target in ipairs { "c", "cuda" } do
    add("frozen layers with dropout equal those with a rate of 0 on " .. target, function(t)
        local programs, environment = t.load("tests/lua/programs.lua")(t), nil
        if target == "cuda" then
            local _, of = t.load("tests/lua/devices.lua").open(t)
            environment = of()
        end
        local dumps = {}
        write_rows(t, programs)
        for i, frozen in ipairs { "frozen = true", "lr_scale = 0" } do
            local more = ('target "%s"\nprecision "bf16"\nmemory { recompute = { "*gelu*" } }\n'):format(target)
            local p = programs.build(("layer_groups_dropout_%s%d"):format(target, i),
                bert(true, { drop = "0.2", frozen = frozen, more = more }))
            dumps[i] = programs.dump(p, { "--cycles", 6, env = environment })
        end
        programs.close(dumps[1], dumps[2], 0, { "parameters" })
    end)
end

return tests
