-- Products of one input are one (passes/merge.lua): with and without the pass programs compute the same gradients,
-- updates and files, in every mode that touches a parameter by itself. The plan says what is not merged, and why.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local ROWS, LENGTH, LETTERS = 64, 6, 13

-- Rows of 3 to 6 letters, padded with 0; the target is the next letter but one.
local function data_file(t)
    local ids, mask, target = {}, {}, {}
    for r = 1, ROWS do
        local n = LENGTH - r % 4
        for j = 1, LENGTH do
            ids[#ids + 1] = j <= n and (r * r * 3 + j * j * r + 5 * j) % (LETTERS - 1) + 1 or 0
            mask[#mask + 1], target[#target + 1] = j <= n and 1 or 0, (r * 7 + j * j * 3 + r * j) % LETTERS
        end
    end
    return t.load("tests/numeric/rows.lua").file { { "ids", "I32", { ROWS, LENGTH }, ids },
        { "mask", "I32", { ROWS, LENGTH }, mask }, { "target", "I32", { ROWS, LENGTH }, target } }
end

-- Layers: a Llama of grouped heads; a BERT with biases, a mask and dropout; one layer outside of any loop, whose keys
-- come first in the spec. Without turned keys the gradient of their bias is nothing but rounding: no two ways of
-- computing agree on it.
local MODELS = {
    llama = [[
    x = times(3) "h" (function(x)
        local h = rmsnorm "norm1" {} (x)
        local q = rotary { heads = 4 } (linear "q_proj" { 16, bias = false } (h))
        local k = rotary { heads = 2 } (linear "k_proj" { 8, bias = false } (h))
        local v = linear "v_proj" { 8, bias = false } (h)
        x = x + linear "o_proj" { 16 } (attend { heads = 4, kv_heads = 2, causal = true } (q, k, v))
        h = rmsnorm "norm2" {} (x)
        local gate = silu {} (linear "gate_proj" { 32, bias = false } (h))
        return x + linear "down_proj" { 16 } (gate * linear "up_proj" { 32, bias = false } (h))
    end) (x)]],
    bert = [[
    x = times(2) "layer" (function(x)
        local q, k = rotary { heads = 2 } (linear "query" { 16 } (x)), rotary { heads = 2 } (linear "key" { 16 } (x))
        local v = linear "value" { 16 } (x)
        x = layernorm "norm1" {} (x + linear "dense" { 16 } (attend { heads = 2, dropout = 0.1 } (q, k, v, batch.mask)))
        return layernorm "norm2" {} (x + linear "out" { 16 } (gelu {} (linear "in" { 24 } (x))))
    end) (x)]],
    single = [[
    local k, q = linear "key" { 16, bias = false } (x), linear "query" { 16, bias = false } (x)
    x = x + attend { heads = 4 } (q, k, linear "value" { 16, bias = false } (x))
    local pair = linear "left" { 32 } (x) * tanh {} (scale { 2 } (linear "right" { 32 } (x)))
    x = x + linear "both" { 16 } (pair)]],
}

local ADAMW = '{ "adamw", lr = 1e-3, weight_decay = 0.1, groups = { { rank = 1, weight_decay = 0 } } }'

local function spec(model, o)
    return ([[
data       { "tensors", train = "merge.safetensors", target = "target" }
batch      (%d)
accumulate (%d)
model      (function(batch)
    local x = embedding "letters" { %d, 16 } (batch.ids)
%s
    return linear "head" { %d } (x)
end)
init       { %s{ "*", normal = 0.2 } }
loss       "cross_entropy"
optimizer  %s
clip       (0.5)
train      { updates = 6, seed = 5 }
precision  %s
%s]]):format(o.batch or 4, o.accumulate or 3, LETTERS, MODELS[model], LETTERS,
        MODELS[model]:find "norm" and '{ "*norm*.weight", value = 1 }, ' or "", o.optimizer or ADAMW,
        o.precision or '"f64"', o.more or "")
end

local function open(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    t.write(programs.folder() .. "/data/merge.safetensors", data_file(t))
    return programs
end

-- The same program with joint products and without.
local function both(t, name, text, how)
    local programs = open(t)
    local apart = { options = { "--without", "merge" }, comm = how and how.comm }
    return programs, programs.build("merge_" .. name, text, how),
        programs.build("merge_" .. name .. "_apart", text, apart)
end

local FILES = { "parameters", "gradients", "state" }

-- === the same training ===========================================================================

for _, model in ipairs { "llama", "bert", "single" } do
    for _, case in ipairs { { "f64", 1e-12 }, { "f32", 1e-5 } } do
        local precision, bound = table.unpack(case)
        add(("%s, %s: gradients and updates are those of products apart"):format(model, precision), function(t)
            local text = spec(model, { precision = ('"%s"'):format(precision) })
            local programs, joint, apart = both(t, model .. "_" .. precision, text)
            for _, cycles in ipairs { 1, 3 } do
                local options = { "--cycles", cycles, "--threads", 2 }
                programs.close(programs.dump(joint, options), programs.dump(apart, { "--cycles", cycles }), bound,
                    precision == "f64" and FILES or cycles == 1 and { "gradients" } or { "parameters" })
            end
        end)
    end
end

add("initial values are those of the parameters by themselves", function(t)
    local programs, joint, apart = both(t, "llama_f64", spec("llama", {}))
    local files = {}
    for i, p in ipairs { joint, apart } do
        files[i] = t.temp() .. "/start.safetensors"
        programs.train(p, { "--cycles", 1, "--save-init", files[i] })
    end
    t.equal(programs.difference(files[1], files[2]), 0)
end)

-- A rule for each kind of state: of elements, with norms of tensors, with factors and products of matrices.
for _, case in ipairs { { "sgd", '{ "sgd", lr = 0.1, momentum = 0.9 }' }, { "lamb", '{ "lamb", lr = 1e-2 }' },
    { "adafactor", '{ "adafactor", lr = 1e-2 }' }, { "muon", '{ "muon", lr = 1e-2, rest = { "adamw", lr = 1e-3 } }' },
    { "ema", '{ "adamw", lr = 1e-3, ema = 0.9 }' }, { "layer_decay", '{ "adamw", lr = 1e-3, layer_decay = 0.7 }' } } do
    local name, optimizer = table.unpack(case)
    add(("%s updates each parameter by itself"):format(name), function(t)
        local text = spec("llama", { optimizer = optimizer })
        local programs, joint, apart = both(t, "rule_" .. name, text)
        programs.close(programs.dump(joint, { "--cycles", 3 }), programs.dump(apart, { "--cycles", 3 }), 1e-10, FILES)
    end)
end

for _, accum in ipairs { "kahan", "bf16" } do
    add(('sums over the micro-steps of accum = "%s"'):format(accum), function(t)
        local text = spec("bert", { precision = ('{ "f32", accum = "%s" }'):format(accum) })
        local programs, joint, apart = both(t, "accum_" .. accum, text)
        programs.close(programs.dump(joint, { "--cycles", 1 }), programs.dump(apart, { "--cycles", 1 }),
            accum == "bf16" and 0.01 or 1e-5, { "gradients" })
    end)
end

-- === the same bits ===============================================================================

for _, model in ipairs { "llama", "bert", "single" } do
    add(model .. ": bits depend on neither fusion nor threads nor recomputation", function(t)
        local programs = open(t)
        local text = spec(model, {})
        local joint = programs.build("merge_" .. model .. "_f64", text)
        local kept = programs.dump(joint, { "--cycles", 3, "--threads", 1 })
        for _, threads in ipairs { 2, 3, 4 } do
            programs.identical(programs.dump(joint, { "--cycles", 3, "--threads", threads }), kept, FILES)
        end
        local plain = programs.build("merge_" .. model .. "_plain", text, { options = { "--without", "fusion" } })
        programs.identical(programs.dump(plain, { "--cycles", 3 }), kept, FILES)
        local again = programs.build("merge_" .. model .. "_again",
            spec(model, { more = 'memory { recompute = { "*" } }\n' }))
        programs.identical(programs.dump(again, { "--cycles", 3 }), kept, FILES)
    end)
end

for _, precision in ipairs { "bf16", "f16" } do
    add(precision .. ": gradients within roundings of those of products apart, bits as without fusion", function(t)
        local more = precision == "f16" and "scaler { initial_scale = 1024 }\n" or ""
        local text = spec("llama", { precision = ('"%s"'):format(precision), more = more })
        local programs, joint, apart = both(t, precision, text)
        local found = programs.dump(joint, { "--cycles", 1 })
        programs.close(found, programs.dump(apart, { "--cycles", 1 }), precision == "bf16" and 0.03 or 0.004,
            { "gradients" }, programs.distance)
        local plain = programs.build("merge_" .. precision .. "_plain", text, { options = { "--without", "fusion" } })
        programs.identical(programs.dump(plain, { "--cycles", 1, "--threads", 3 }), found, FILES)
    end)
end

add("a value is recomputed by the name that it has in products apart", function(t)
    local programs = open(t)
    local text = spec("bert", { more = 'memory { recompute = { "*key_y" } }\n' })
    local again, kept = programs.build("merge_named", text), programs.build("merge_bert_f64", spec("bert", {}))
    programs.identical(programs.dump(again, { "--cycles", 2 }), programs.dump(kept, { "--cycles", 2 }), FILES)
end)

-- === ranks and files =============================================================================

for _, mode in ipairs { "ddp", "zero1", "zero2" } do
    add(mode .. ": two ranks train as one", function(t)
        local more = ('parallel { "%s", bucket = "2KiB" }\n'):format(mode)
        for _, model in ipairs { "llama", "single" } do
            local programs = open(t)
            local one = programs.build(("merge_%s_one"):format(model), spec(model, { accumulate = 4 }))
            local text = spec(model, { accumulate = 2, more = more })
            local two = programs.build(("merge_%s_%s"):format(model, mode), text, { comm = "mpi" })
            programs.close(programs.dump(two, { "--cycles", 3, ranks = 2 }), programs.dump(one, { "--cycles", 3 }),
                1e-11, FILES)
        end
    end)
end

add("checkpoints of joint products go on apart, and the other way round", function(t)
    local programs, joint, apart = both(t, "llama_f64", spec("llama", {}))
    local function ends(first, second)
        local folder, dump = t.temp(), t.temp()
        programs.train(first, { "--cycles", 2, "--checkpoint", folder })
        programs.train(second, { "--cycles", 4, "--resume", "latest", "--checkpoint", folder, "--dump", dump })
        return dump
    end
    local whole = programs.dump(joint, { "--cycles", 4 })
    programs.close(ends(joint, apart), whole, 1e-12, { "parameters", "state" })
    programs.close(ends(apart, joint), whole, 1e-12, { "parameters", "state" })
    programs.identical(ends(joint, joint), whole, { "parameters", "state" })
end)

for _, model in ipairs { "llama", "bert", "single" } do
    add(model .. ": a device computes the joint products too", function(t)
        open(t)
        devices.same_as_c(t, "merge_" .. model, spec(model, {}), 1e-11, model ~= "bert" and devices.LIGHT or nil)
    end)
end

add("two devices with their parts of state and gradients train as one process", function(t)
    if devices.gpus(t) == 1 then t.not_run("1 GPU, 2 are needed") end
    open(t)
    local programs, environment = devices.open(t)
    local text = spec("llama", { accumulate = 2, more = 'parallel { "zero2", bucket = "2KiB" }\ntarget "cuda"\n' })
    local two, folder = programs.build("merge_devices", text), t.temp()
    local one = programs.build("merge_llama_one", spec("llama", { accumulate = 4 }))
    local result = t.run { t.root .. "/tests/device/ranks", "2", two.train, "--quiet", "--cycles", "3", "--checkpoint",
        t.temp(), "--dump", folder, env = environment(devices.checked(1)) }
    t.equal(result.status, 0, result.err)
    programs.close(folder, programs.dump(one, { "--cycles", 3 }), 1e-11, FILES)
end)

-- === what is not merged ==========================================================================

-- The lines of `gagen plan --why` of the spec that speak of merging.
local function reasons(t, name, text)
    local programs = open(t)
    local path = programs.folder() .. "/" .. name .. ".lua"
    t.write(path, text)
    local result = programs.gagen { "plan", "--why", path }
    t.equal(result.status, 0, result.err)
    local lines = {}
    for line in result.out:gmatch "[^\n]*merged[^\n]*" do lines[#lines + 1] = (line:gsub("%s+", " ")) end
    return table.concat(lines, "\n")
end

-- A layer whose queries, keys and values are these expressions of x.
local function attention(q, k, v, more)
    local layer = ([[
    local w = linear "w" { 16 }
    local y = attend { heads = 2 } (%s, %s, %s)
    x = y + w(x) + w(y)]]):format(q, k, v)
    MODELS.own = layer
    return spec("own", more or {})
end

for _, case in ipairs {
    { "tied", 'linear "q" { 16 } (x)', "w(x)", 'linear "v" { 16 } (x)', {}, "nodes read w.weight" },
    { "stored", 'linear "q" { 16, store = "in_out" } (x)', 'linear "k" { 16 } (x)', 'linear "v" { 16 } (x)', {},
        "a weight is stored %(in, out%)" },
    { "bias", 'linear "q" { 16 } (x)', 'linear "k" { 16, bias = false } (x)', 'linear "v" { 16 } (x)', {},
        "only some have a bias" },
    { "frozen", 'linear "q" { 16 } (x)', 'linear "k" { 16 } (x)', 'linear "v" { 16 } (x)',
        { optimizer = '{ "sgd", lr = 0.1, groups = { { "k.*", frozen = true } } }' }, "only some are trained" },
    { "groups", 'linear "q" { 16 } (x)', 'linear "k" { 16 } (x)', 'linear "v" { 16 } (x)',
        { optimizer = '{ "sgd", lr = 0.1, groups = { { "v.weight", lr_scale = 2 } } }' },
        "v.weight have different groups of the optimizer" },
    { "turned", 'rotary { heads = 2 } (linear "q" { 16 } (x))', 'linear "k" { 16 } (x)', 'linear "v" { 16 } (x)', {},
        "only queries or only keys are turned" },
    { "bases", 'rotary { heads = 2 } (linear "q" { 16 } (x))', 'rotary { heads = 2, base = 7 } (linear "k" { 16 } (x))',
        'linear "v" { 16 } (x)', {}, "queries and keys are turned differently" },
} do
    add("not merged, and the plan says why: " .. case[1], function(t)
        local _, q, k, v, more, why = table.unpack(case)
        local lines = reasons(t, "merge_not_" .. case[1], attention(q, k, v, more))
        t.match(lines, "q_y, [kw]_y, v_y not merged .*" .. why)
    end)
end

add("not merged, and the plan says why: values that whole rows are read of", function(t)
    local lines = reasons(t, "merge_not_rows", attention('linear "q" { 16 } (x)',
        'layernorm "norm" {} (linear "k" { 16 } (x))', 'linear "v" { 16 } (x)'))
    t.contains(lines, "q_y, k_y, v_y, w_y not merged no attention reads them as queries, keys and values")
end)

add("the plan names what was merged, and nothing without the pass", function(t)
    local programs = open(t)
    local lines = reasons(t, "merge_why", spec("llama", {}))
    t.contains(lines, "h_qkv_proj_y merged h_q_proj_y, h_k_proj_y, h_v_proj_y read one input")
    t.contains(lines, "h_gate_up_proj_y merged h_gate_proj_y, h_up_proj_y read one input")
    local joint = programs.plan(programs.build("merge_llama_f64", spec("llama", {})))
    local apart = programs.plan(programs.build("merge_llama_f64", spec("llama", {})), "--without", "merge")
    local function count(plan, pattern)
        local n = 0
        for _, kernel in ipairs(plan.kernels) do n = n + (kernel.fn:find(pattern) and 1 or 0) end
        return n
    end
    t.equal({ count(joint, "^rotary"), count(apart, "^rotary") }, { 2, 4 })
    t.equal(count(apart, "^linear") - count(joint, "^linear"), 9)
    t.equal(#joint.parameters, #apart.parameters)
end)

return tests
