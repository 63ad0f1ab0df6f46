-- A small version of the shipped BERT against Hugging Face's transformers: specs/bert_sst2.lua with other sizes must
-- give the same losses, gradients and parameters in training without dropout, and the same evaluation with dropout.
-- tests/reference/bert.py makes the expected figures.
-- Invariant: no Python runs here; data are the script's formulas, settings stand in both.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local FIGURES, CYCLES = "tests/reference/bert/", 10
local ROWS, LENGTH, VOCABULARY = 32, 7, 29

local OPTIMIZERS = {
    sgd = '{ "sgd", lr = 0.05, momentum = 0.9, weight_decay = 5e-4 }',
    adamw = '{ "adamw", lr = 3e-3, weight_decay = 0.1, eps = 1e-3, groups = { { rank = 1, weight_decay = 0 } } }',
}

local function data_file(t)
    local ids, mask, types, label = {}, {}, {}, {}
    for r = 0, ROWS - 1 do
        local n = 3 + r * r % (LENGTH - 2)
        for i = 0, LENGTH - 1 do
            local at, seen = r * LENGTH + i + 1, i < n
            ids[at] = seen and 1 + (r * 5 + i * i * 3 + r * i) % (VOCABULARY - 1) or 0
            mask[at], types[at] = seen and 1 or 0, seen and 2 * i > n and 1 or 0
        end
        label[r + 1] = (r * 7 + r // 3) % 2
    end
    local shape = { ROWS, LENGTH }
    return t.load("tests/numeric/rows.lua").file { { "ids", "I32", shape, ids }, { "mask", "I32", shape, mask },
        { "types", "I32", shape, types }, { "label", "I32", { ROWS }, label } }
end

-- The shipped spec with the small sizes; each replacement must fit one line.
local function spec(o)
    local text = assert(host.read("specs/bert_sst2.lua"))
    local function line(pattern, with)
        local count
        text, count = text:gsub("\n" .. pattern .. "[^\n]*", function() return "\n" .. with end)
        assert(count == 1, pattern .. ": " .. count .. " lines")
    end
    line("local vocabulary,", ("local vocabulary, places, width, inner, heads, layers, drop = 29, 9, 12, 24, 3, 2, %g")
        :format(o.drop))
    line("data ", 'data { "tensors", train = "bert_rows.safetensors", eval = "bert_rows.safetensors", '
        .. 'target = "label", shuffle = false }')
    line("batch ", "batch (4)")
    line("accumulate ", ("accumulate (%d)"):format(o.accumulate))
    if o.precision ~= "f16" then
        line("precision ", ('precision "%s"'):format(o.precision))
        line("scaler ", "")
    end
    line("optimizer ", "optimizer " .. OPTIMIZERS[o.optimizer])
    line("schedule ", "")
    line("train ", ("train { updates = %d }"):format(CYCLES))
    return 'name "bert_small"\n' .. text
end

local function open(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    t.write(programs.folder() .. "/data/bert_rows.safetensors", data_file(t))
    return programs, programs.tensors(FIGURES .. "losses.safetensors")
end

local function name_of(o) return ("%s_a%d"):format(o.optimizer, o.accumulate) end

-- Checks the losses of a run of o.cycles, its scale if o.scale is one, and returns the folder of its dump.
local function losses_are(t, programs, p, expected, bound, o)
    local i, folder = 0, t.temp()
    o = o or {}
    for _, event in ipairs(programs.events(p, { "--init", FIGURES .. "init.safetensors", "--threads", 2, "--dump",
        folder, "--cycles", o.cycles or CYCLES, env = o.env })) do
        if event.event == "update" then
            i = i + 1
            t.near(event.loss, expected[i], bound * expected[i])
            if o.scale then t.equal({ event.scale, event.skipped }, { o.scale, 0 }) end
        end
    end
    t.equal(i, o.cycles or CYCLES)
    return folder
end

local function norm(values, other)
    local sum = 0
    for i, v in ipairs(values) do sum = sum + (v - (other and other[i] or 0)) ^ 2 end
    return math.sqrt(sum)
end

-- ||a - b|| <= bound ||b|| for each tensor. The gradient of a key's bias is 0 except for rounding, since the bias adds
-- the same to all scores of a query. Its error is compared with the gradient of the key's weight.
local function gradients_are(programs, found, expected, bound)
    local a, b, count = programs.tensors(found), programs.tensors(expected), 0
    for name, tensor in next, b do
        local size = norm(b[name:gsub("key%.bias$", "key.weight")].values)
        local distance = norm(assert(a[name], name).values, tensor.values)
        if not (size > 0 and distance <= bound * size) then
            error(("%s is off by %.3g of its norm, at most %.0e expected"):format(name, distance / size, bound), 0)
        end
        count = count + 1
    end
    assert(count == 41, count .. " tensors")
end

for _, optimizer in ipairs { "sgd", "adamw" } do
    for _, accumulate in ipairs { 1, 4 } do
        add(("%s_a%d in f64: losses to 1e-9, parameters"):format(optimizer, accumulate), function(t)
            if (optimizer == "adamw") ~= (accumulate == 1) then t.long() end
            local o = { optimizer = optimizer, accumulate = accumulate, precision = "f64", drop = 0 }
            local programs, losses = open(t)
            local p = programs.build("bert_f64_" .. name_of(o), spec(o))
            local dump = losses_are(t, programs, p, losses[name_of(o)].values, 1e-9)
            local worst, where = programs.difference(dump .. "/parameters.safetensors",
                FIGURES .. name_of(o) .. ".safetensors")
            assert(worst <= 1e-10, ("%s is off by %.3g"):format(where, worst))
        end)
    end
end

for _, accumulate in ipairs { 1, 4 } do
    add(("a%d in f32: losses to 1e-3, the first gradients to 1e-4"):format(accumulate), function(t)
        if accumulate == 1 then t.long() end
        local o = { optimizer = "adamw", accumulate = accumulate, precision = "f32", drop = 0 }
        local programs, losses = open(t)
        local p = programs.build("bert_f32_" .. name_of(o), spec(o))
        losses_are(t, programs, p, losses[name_of(o)].values, 1e-3)
        local dump = programs.dump(p, { "--init", FIGURES .. "init.safetensors", "--cycles", 1 })
        gradients_are(programs, dump .. "/gradients.safetensors", ("%sfirst_a%d.safetensors"):format(FIGURES,
            accumulate), 1e-4)
    end)
end

-- Values are stored with 11 bits: each store is off by 2^-11 at most. About 20 of them lie between the words and
-- the loss, and as many on the way back.
add("as shipped, in f16 with a scale: losses to 20 / 2^11, the first gradients to 40 / 2^11", function(t)
    local o = { optimizer = "adamw", accumulate = 4, precision = "f16", drop = 0 }
    local programs, losses = open(t)
    local p = programs.build("bert_f16", spec(o))
    losses_are(t, programs, p, losses[name_of(o)].values, 20 / 2 ^ 11, { scale = 65536 })
    local dump = programs.dump(p, { "--init", FIGURES .. "init.safetensors", "--cycles", 1 })
    gradients_are(programs, dump .. "/gradients.safetensors", FIGURES .. "first_a4.safetensors", 40 / 2 ^ 11)
end)

add("evaluation leaves dropout out: loss, accuracy and F1", function(t)
    local o = { optimizer = "adamw", accumulate = 1, precision = "f64", drop = 0.1 }
    local programs, losses = open(t)
    local p = programs.build("bert_eval", spec(o))
    local loss, hits, tp, fp, fn = table.unpack(losses.eval.values)
    for _, event in ipairs(programs.events(p, { "--init", FIGURES .. "init.safetensors", "--eval" })) do
        if event.event == "eval" then
            t.equal(event.rows, ROWS)
            t.near(event.loss, loss, 1e-9 * loss)
            t.near(event.accuracy, hits / ROWS, 1e-9)
            t.near(event.f1, 2 * tp / (2 * tp + fp + fn), 1e-9)
            return
        end
    end
    error("no evaluation", 0)
end)

add("on a device: losses to 1e-9", function(t)
    local o = { optimizer = "sgd", accumulate = 4, precision = "f64", drop = 0 }
    local programs, losses = open(t)
    local devices = dofile "tests/lua/devices.lua"
    local _, environment = devices.open(t)
    local p = programs.build("bert_cuda", (spec(o):gsub('\ntarget  *"c"', '\ntarget "cuda"')))
    t.contains(host.read(p.spec), '\ntarget "cuda"\n')
    losses_are(t, programs, p, losses[name_of(o)].values, 1e-9, { env = environment() })
    losses_are(t, programs, p, losses[name_of(o)].values, 1e-9, { env = environment(devices.light(t, 1)), cycles = 2 })
end)

-- -- files of others ----------------------------------------------------------------------------

local function shared_file(t, name)
    local root = t.environment "GAGEN_DATA" or t.not_run("GAGEN_DATA is not set")
    local path = root .. "/safetensors/" .. name
    if not host.exists(path) then t.not_run(path .. " is not there") end
    return path
end

-- Loads a file of a model's body alone, with names without prefix: the parameters in it get its values.
local function body_is_taken(t, programs, p, file, part, options)
    local start = t.temp() .. "/start.safetensors"
    table.move({ "--init", file, "--save-init", start, "--eval" }, 1, 5, #options + 1, options)
    local result = programs.train(p, options)
    local found, expected, count = programs.tensors(start), programs.tensors(file), 0
    for name, tensor in next, expected do
        t.equal(assert(found[part .. name], name).values, tensor.values, name)
        count = count + 1
    end
    t.contains(result.err, ("its names lack the model's prefix '%s': it was added to %d tensors\n"):format(part, count))
    return result.err
end

add("the shipped BERT loads a file of Hugging Face's BertModel", function(t)
    local file, programs = shared_file(t, "tiny_bert_2layer.safetensors"), open(t)
    local text = spec { optimizer = "adamw", accumulate = 1, precision = "f32", drop = 0 }
    local p = programs.build("bert_body", (text:gsub("= 29, 9, 12, 24, 3, 2,", "= 256, 128, 32, 64, 4, 2,")))
    local err = body_is_taken(t, programs, p, file, "bert.", { "--fresh", "bert.pooler.*,classifier.*" })
    t.contains(err, ": parameters that are not in it keep their initial values (4): 'bert.pooler.dense.weight', "
        .. "'bert.pooler.dense.bias', ...\n")
    local refused = programs.train(p, { "--init", file, status = 1 })
    t.contains(refused.err, "'bert.pooler.dense.weight' is missing")
    t.match(refused.err, "; %-%-fresh GLOB keeps the initial values of names of GLOB\n$")
    refused = programs.train(p, { "--fresh", "classifier.*", status = 1 })
    t.contains(refused.err, "--fresh: given without --init")
end)

add("the shipped GPT-2 loads a file of Hugging Face's GPT2Model", function(t)
    local file, programs = shared_file(t, "tiny_gpt2.safetensors"), open(t)
    local text = assert(host.read("specs/gpt2_124m.lua"))
    for _, change in ipairs { { "{ 50257, 768 }", "{ 21, 2 }" }, { "times%(12%)", "times(1)" }, { "2304", "6" },
        { "heads = 12", "heads = 1" }, { "3072", "8" }, { "{ 768, store", "{ 2, store" },
        { "\ndata .-context = 1024 }", '\ndata { "text", train = "few_letters.txt", eval = "few_letters.txt", '
            .. "context = 8 }" },
        { "\nbatch [^\n]*", "\nbatch (4)" } } do
        local count
        text, count = text:gsub(change[1], change[2])
        assert(count > 0, change[1])
    end
    t.write(programs.folder() .. "/data/few_letters.txt", ("abcdefghijklmnopqrstu"):rep(40))
    local p = programs.build("gpt2_body", 'name "gpt2_body"\n' .. text)
    body_is_taken(t, programs, p, file, "transformer.", {})
end)

-- The exported file of the small model with fewer heads of keys and values: what `gagen export --hf` says.
local function export(t, kv_heads)
    local exported, json = dofile "tests/lua/exported.lua", dofile "tests/lua/json.lua"
    local tensors = exported.tensors(FIGURES .. "init.safetensors")
    for name, tensor in next, tensors do
        if name:find "self.key" or name:find "self.value" then
            tensor.shape[1] = tensor.shape[1] // 3 * kv_heads
            table.move({}, 1, #tensor.values, #tensor.values // 3 * kv_heads + 1, tensor.values)
        end
    end
    local text = spec { optimizer = "adamw", accumulate = 1, precision = "f32", drop = 0 }
    local fewer = { ["attend { heads = heads,"] = "attend { heads = heads, kv_heads = " .. kv_heads .. ",",
        ['linear "attention.self.key"   { width }'] = 'linear "attention.self.key" { 4 * ' .. kv_heads .. " }",
        ['linear "attention.self.value" { width }'] = 'linear "attention.self.value" { 4 * ' .. kv_heads .. " }" }
    for from, to in next, fewer do
        local count
        text, count = text:gsub(from:gsub("%p", "%%%0"), to)
        assert(count == 1, from)
    end
    local folder, run = exported.open(t, text, tensors)
    t.write(folder .. "/data/bert_rows.safetensors", data_file(t))
    local result = run("--hf", "made")
    if result.status ~= 0 then return result end
    local found, header = exported.tensors(folder .. "/made/model.safetensors")
    exported.same(t, found, tensors)
    for name, entry in next, header do
        local elements = 1
        for _, n in ipairs(entry.shape or {}) do elements = elements * n end
        if entry.shape then t.equal(entry.data_offsets[2] - entry.data_offsets[1], 4 * elements, name) end
    end
    return result, json.read(host.read(folder .. "/made/config.json"))
end

add("hf: the shipped BERT keeps its tensors; fewer heads of keys and values have no place in it", function(t)
    local result, config = export(t, 3)
    t.equal(result.status, 0, result.err)
    t.equal({ config.hidden_size, config.num_attention_heads, config.num_hidden_layers }, { 12, 3, 2 })
    result = export(t, 1)
    t.equal({ result.status, result.out }, { 1, "" })
    t.match(result.err, "^out/p/spec.lua:%d+: export: kv_heads is 1, heads is 3\n")
end)

return tests
