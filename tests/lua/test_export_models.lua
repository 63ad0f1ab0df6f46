-- `gagen export RUN --hf | --onnx | --gguf`: files made from runs whose parameters are those of tests/reference. The
-- results of transformers and onnxruntime for such files are in tests/reference/exports/figures.txt.
-- Invariant: nothing is compiled here: a run's folder is written by the test.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local exported, json = dofile "tests/lua/exported.lua", dofile "tests/lua/json.lua"
local SPECS, reference = exported.specs, exported.reference

-- (rows, columns) as (columns, rows).
local function transposed(tensor)
    local rows, columns, values = tensor.shape[1], tensor.shape[2], {}
    for c = 1, columns do
        for r = 1, rows do values[#values + 1] = tensor.values[(r - 1) * columns + c] end
    end
    return { shape = { columns, rows }, values = values }
end

local function hf(t, spec, tensors)
    local folder, export = exported.open(t, spec, tensors)
    local result = export("--hf", "made")
    t.equal({ result.status, result.out }, { 0, "" }, result.err)
    local found, header = exported.tensors(folder .. "/made/model.safetensors")
    t.equal(header.__metadata__, { format = "pt" })
    return json.read(host.read(folder .. "/made/config.json")), found, result, folder
end

local function some_fields(config, expected)
    local found = {}
    for name in next, expected do found[name] = config[name] end
    return found
end

add("hf: GPT-2 keeps its tensors, whose names and order are Hugging Face's", function(t)
    local config, found, result = hf(t, SPECS.gpt, reference("gpt"))
    exported.same(t, found, reference("gpt"))
    local expected = { architectures = { "GPT2LMHeadModel" }, model_type = "gpt2", n_positions = 8, n_embd = 12,
        n_layer = 2, n_head = 3, n_inner = 48, activation_function = "gelu_new", layer_norm_epsilon = 1e-5,
        vocab_size = 13, tie_word_embeddings = true }
    t.equal(some_fields(config, expected), expected)
    t.equal(config.eos_token_id, nil)
    t.match(result.err, "^wrote made: GPT2LMHeadModel, 28 tensors, no tokenizer: %-%-vocab names its vocabulary\n$")
end)

add("hf: Llama", function(t)
    local config, found = hf(t, SPECS.llama, reference("llama"))
    exported.same(t, found, reference("llama"))
    local expected = { architectures = { "LlamaForCausalLM" }, hidden_size = 16, intermediate_size = 20,
        num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2, head_dim = 4, hidden_act = "silu",
        max_position_embeddings = 8, rms_norm_eps = 1e-6, rope_theta = 500, attention_bias = false, mlp_bias = false,
        vocab_size = 13, tie_word_embeddings = false }
    t.equal(some_fields(config, expected), expected)
end)

-- Tensors of OTHER_GPT: value i of a tensor is a number of its name's hash.
local function other_tensors()
    local list = {}
    local function tensor(name, ...)
        local shape, n = { ... }, 1
        for _, extent in ipairs(shape) do n = n * extent end
        local seed, values = tonumber(host.sha256(name):sub(1, 6), 16), {}
        for i = 1, n do values[i] = (seed * i % 1009 - 504) / 512 end
        list[name] = { shape = shape, values = values }
    end
    tensor("words.weight", 13, 6)
    tensor("places.weight", 9, 6)
    for l = 0, 1 do
        local b = ("b.%d."):format(l)
        tensor(b .. "n1.weight", 6)
        for _, name in ipairs { "q", "k", "v", "o" } do
            tensor(b .. name .. ".weight", 6, 6)
            if name ~= "k" then tensor(b .. name .. ".bias", 6) end
        end
        for _, name in ipairs { "n2.weight", "n2.bias", "down.bias" } do tensor(b .. name, 6) end
        tensor(b .. "up.weight", 10, 6)
        tensor(b .. "up.bias", 10)
        tensor(b .. "down.weight", 6, 10)
    end
    tensor("last.weight", 6)
    tensor("last.bias", 6)
    tensor("head.weight", 13, 6)
    return list
end

add("hf: GPT-2 of other names, order and options", function(t)
    local own = other_tensors()
    local config, found = hf(t, SPECS.other, own)
    local expected = { ["transformer.wte.weight"] = own["words.weight"], ["lm_head.weight"] = own["head.weight"],
        ["transformer.wpe.weight"] = own["places.weight"], ["transformer.ln_f.weight"] = own["last.weight"],
        ["transformer.ln_f.bias"] = own["last.bias"] }
    local zeros = { shape = { 6 }, values = { 0, 0, 0, 0, 0, 0 } }
    for l = 0, 1 do
        local b, h = ("b.%d."):format(l), ("transformer.h.%d."):format(l)
        expected[h .. "ln_1.weight"], expected[h .. "ln_1.bias"] = own[b .. "n1.weight"], zeros
        expected[h .. "ln_2.weight"], expected[h .. "ln_2.bias"] = own[b .. "n2.weight"], own[b .. "n2.bias"]
        local joint, bias = { shape = { 18, 6 }, values = {} }, { shape = { 18 }, values = {} }
        for _, name in ipairs { "q", "k", "v" } do
            for _, v in ipairs(own[b .. name .. ".weight"].values) do table.insert(joint.values, v) end
            for _, v in ipairs((own[b .. name .. ".bias"] or zeros).values) do table.insert(bias.values, v) end
        end
        expected[h .. "attn.c_attn.weight"], expected[h .. "attn.c_attn.bias"] = transposed(joint), bias
        for to, from in next, { ["attn.c_proj"] = "o", ["mlp.c_fc"] = "up", ["mlp.c_proj"] = "down" } do
            expected[h .. to .. ".weight"] = transposed(own[b .. from .. ".weight"])
            expected[h .. to .. ".bias"] = own[b .. from .. ".bias"]
        end
    end
    exported.same(t, found, expected)
    local fields = { n_positions = 9, n_inner = 10, activation_function = "gelu", layer_norm_epsilon = 1e-4,
        attn_pdrop = 0.1, embd_pdrop = 0.2, tie_word_embeddings = false }
    t.equal(some_fields(config, fields), fields)
end)

add("the newest, the best or a named checkpoint; one that was cut off does not count", function(t)
    local folder, export, run = exported.open(t, SPECS.gpt, reference("gpt"))
    local function first(...)
        local result = export("--hf", "made", ...)
        t.equal(result.status, 0, result.err)
        return exported.tensors(folder .. "/made/model.safetensors")["transformer.ln_f.bias"].values[1]
    end
    local tensors = reference("gpt")
    tensors["transformer.ln_f.bias"].values[1] = 8
    exported.checkpoint(t, run, "cycle-000000003", tensors, 3)
    tensors["transformer.ln_f.bias"].values[1] = 16
    exported.checkpoint(t, run, "cycle-000000009", tensors, 9, '"best":{"cycle":3},')
    tensors["transformer.ln_f.bias"].values[1] = 32
    exported.checkpoint(t, run, "cycle-000000012", tensors, 12)
    t.write(run .. "/checkpoints/cycle-000000012/model.safetensors", "cut")
    t.equal({ first(), first("--checkpoint", "newest"), first("--checkpoint", "best"),
        first("--checkpoint", "cycle-000000003") }, { 16.0, 16.0, 8.0, 8.0 })
    local result = export("--hf", "made", "--checkpoint", "cycle-000000012")
    t.equal(result.status, 1)
    t.match(result.err, "no whole checkpoint 'cycle%-000000012', expected newest, best or one of cycle%-000000003, ")
end)

-- Bytes of hello.txt in their order, as GPT-2 names them, by id from 0.
local LETTERS = { "\u{10A}", "\u{120}", "d", "e", "h", "l", "o", "r", "w" }

-- SPECS.gpt on that text: its tables have as many rows as there are letters.
local function letters(t)
    local spec = SPECS.gpt:gsub('"tokens", train = "seven.bin"', '"text", train = "hello.txt"'):gsub("13", "9")
    local tensors = reference "gpt"
    local words = tensors["transformer.wte.weight"]
    tensors["transformer.wte.weight"] = { shape = { 9, 12 }, values = { table.unpack(words.values, 1, 108) } }
    return exported.open(t, spec, tensors)
end

add("a text's letters are its tokenizer", function(t)
    local folder, export = letters(t)
    t.match(export("--hf", "made").err, ", its tokenizer\n$")
    local tokenizer = json.read(host.read(folder .. "/made/tokenizer.json"))
    local vocabulary = {}
    for id, name in ipairs(LETTERS) do vocabulary[name] = id - 1 end
    t.equal({ tokenizer.model.type, tokenizer.model.vocab, tokenizer.model.merges },
        { "BPE", vocabulary, {} })
    t.equal(json.read(host.read(folder .. "/made/tokenizer_config.json")),
        { tokenizer_class = "PreTrainedTokenizerFast", model_max_length = 8 })
    t.equal(export("--gguf", "made.gguf").status, 0)
    local parts = {}
    for _, name in ipairs(LETTERS) do parts[#parts + 1] = string.pack("<s8", name) end
    t.contains(host.read(folder .. "/made.gguf"), string.pack("<s8I4I4I8", "tokenizer.ggml.tokens", 9, 8, 9)
        .. table.concat(parts))
    local result = export("--hf", "made", "--vocab", "vocab.txt")
    t.equal(result.status, 1)
    t.match(result.err, "%-%-vocab: the model was not trained on ids of a vocabulary")
end)

add("averages of the parameters stand in their place, where the optimizer keeps some", function(t)
    local spec = SPECS.gpt:gsub('lr = 0.1', '%0, ema = 0.9')
    local folder, export, run = exported.open(t, spec, reference "gpt")
    local averages, wanted = {}, reference "gpt"
    for name, tensor in next, wanted do
        for i, value in ipairs(tensor.values) do tensor.values[i] = 2 * value end
        averages[name .. ".ema"] = tensor
    end
    exported.checkpoint(t, run, "cycle-000000005", reference "gpt", 5, nil, averages)
    t.equal(export("--hf", "made").status, 0)
    exported.same(t, exported.tensors(folder .. "/made/model.safetensors"), wanted)
end)

-- -- refusals -----------------------------------------------------------------------------------

-- A spec with `from` replaced by `to`.
local function changed(spec, from, to)
    local first, last = spec:find(from, 1, true)
    assert(first, from)
    return spec:sub(1, first - 1) .. to .. spec:sub(last + 1)
end

local REFUSED = {
    { SPECS.gpt, 'layernorm "ln_1" {}', 'layernorm "ln_1" { eps = 1e-3 }', "eps is 0.001 here and 1e%-05" },
    { SPECS.gpt, "causal = true", "causal = false", "where BERT has its pooled place: expected tanh" },
    { SPECS.gpt, 'gelu { "tanh" }', "elu {}", "'elu' found where GPT%-2 has its activation: expected gelu, relu, " },
    { SPECS.gpt, 'unembed { "transformer.wte" }', 'linear "head" { 13 }', "the head has a bias" },
    { SPECS.gpt, 'positions "wpe" { 8 },', "", "'embedding' found where GPT%-2 has its embeddings: " },
    { SPECS.gpt, 'layernorm "ln_f" {},', 'layernorm "ln_f" {}, tanh {},',
        "'tanh' found where GPT%-2 has the norm before its head: expected layernorm" },
    { SPECS.llama, "silu {} (", "(", "found where Llama has its activation" },
    { SPECS.llama, "rotary { heads = 2, base = 500 }", "rotary { heads = 2 }", "rotary with two bases, 500 and 10000" },
    { SPECS.llama, "x = x + dense", "x = x * dense", "'mul' found where Llama has the sum behind its attention" },
}

add("hf: what has no place in a form is refused with its line", function(t)
    for i, case in ipairs(REFUSED) do
        local spec = changed(case[1], case[2], case[3])
        local wanted = reference(case[1] == SPECS.gpt and "gpt" or "llama")
        if i == 4 then
            wanted["head.weight"] = { shape = { 13, 12 }, values = wanted["transformer.wte.weight"].values }
            wanted["head.bias"] = { shape = { 13 }, values = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } }
        end
        local folder, export = exported.open(t, spec, wanted)
        local result = export("--hf", "made")
        t.equal({ result.status, result.out }, { 1, "" }, case[3])
        t.match(result.err, "^out/p/spec.lua:%d+: export: ")
        t.match(result.err, case[4])
        t.equal(host.exists(folder .. "/made"), false)
    end
end)

add("another spec, other shapes, damaged files and no checkpoint are refused", function(t)
    local _, export = exported.open(t, SPECS.gpt)
    t.match(export("--hf", "made").err, "no whole checkpoint there, expected one")
    local tensors = reference("gpt")
    tensors["transformer.wpe.weight"].shape = { 12, 8 }
    local run
    _, export, run = exported.open(t, SPECS.gpt, reference "gpt")
    local path = run .. "/checkpoints/cycle-000000004/model.safetensors"
    local bytes = host.read(path)
    t.write(path, bytes:sub(1, -2) .. string.char(bytes:byte(-1) ~ 1))
    t.match(export("--hf", "made").err, "model.safetensors: is damaged: bytes from 0 on have the checksum %x+, ")
    _, export = exported.open(t, SPECS.gpt, tensors)
    t.match(export("--hf", "made").err,
        "parameter 'transformer.wpe.weight' is of shape %(12, 8%), expected the shape %(8, 12%)")
    local folder
    folder, export = exported.open(t, SPECS.gpt, reference("gpt"))
    t.write(folder .. "/out/p/runs/001/spec.lua", SPECS.gpt .. "\n")
    t.match(export("--hf", "made").err, "is not the spec of this run: another hash than spec_sha256")
end)

return tests
