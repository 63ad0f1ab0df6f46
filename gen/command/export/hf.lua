-- hf: a model as transformers of Hugging Face opens it: config.json, model.safetensors, and the files of a tokenizer
-- where one is known.
local diag = require "base.diag"
local forms = require "command.export.forms"
local ordered = require "base.ordered"
local safetensors = require "command.safetensors"
local tokenizer = require "command.export.tokenizer"
local weights = require "command.export.weights"
local written = require "command.written"

-- Collects tensors: add(name, shape, bytes) of F32.
local function collector()
    local tensors = ordered.map()
    return tensors, function(name, shape, bytes) tensors:set(name, { dtype = "F32", shape = shape, bytes = bytes }) end
end

local function add_norm(add, m, name, part, width, layer)
    add(name .. ".weight", { width }, m:floats(part.weight, layer))
    add(name .. ".bias", { width }, weights.bias(m, part, width, layer))
end

-- A layer of torch: weight (out, in), and a bias if `biased`.
local function add_linear(add, m, name, part, layer, biased)
    add(name .. ".weight", { part.out, part.width }, weights.out_in(m, part, layer))
    if biased then add(name .. ".bias", { part.out }, weights.bias(m, part, part.out, layer)) end
end

local WRITERS = {}

-- GPT-2 of transformers keeps weights as (in, out).
function WRITERS.gpt2(m, form, add)
    local function conv1d(name, part, layer)
        add(name .. ".weight", { part.width, part.out }, weights.in_out(m, part, layer))
        add(name .. ".bias", { part.out }, weights.bias(m, part, part.out, layer))
    end
    add("transformer.wte.weight", form.wte.shape, m:floats(form.wte))
    add("transformer.wpe.weight", form.wpe.shape, m:floats(form.wpe))
    for layer = 0, form.layers - 1 do
        local h = ("transformer.h.%d."):format(layer)
        add_norm(add, m, h .. "ln_1", form.ln_1, form.width, layer)
        local joint, bias = "", ""
        for _, part in ipairs(weights.projections(m, form, layer)) do
            joint, bias = joint .. part.weight, bias .. part.bias
        end
        add(h .. "attn.c_attn.weight", { form.width, 3 * form.width },
            host.transposed(joint, 3 * form.width, form.width))
        add(h .. "attn.c_attn.bias", { 3 * form.width }, bias)
        conv1d(h .. "attn.c_proj", form.out, layer)
        add_norm(add, m, h .. "ln_2", form.ln_2, form.width, layer)
        conv1d(h .. "mlp.c_fc", form.up, layer)
        conv1d(h .. "mlp.c_proj", form.down, layer)
    end
    add_norm(add, m, "transformer.ln_f", form.ln_f, form.width)
    if form.head then add_linear(add, m, "lm_head", form.head, 0, false) end
    return { architectures = { "GPT2LMHeadModel" }, model_type = "gpt2", n_positions = form.wpe.shape[1],
        n_embd = form.width, n_layer = form.layers, n_head = form.heads, n_inner = form.up.out,
        activation_function = form.activation, layer_norm_epsilon = form.eps, resid_pdrop = form.drops.hidden or 0.0,
        embd_pdrop = form.drops.embedding or 0.0, attn_pdrop = form.drops.attention }
end

function WRITERS.llama(m, form, add)
    local attention = weights.any_bias(form.qkv[1], form.qkv[2], form.qkv[3], form.out)
    local mlp = weights.any_bias(form.gate, form.up, form.down)
    add("model.embed_tokens.weight", form.wte.shape, m:floats(form.wte))
    for layer = 0, form.layers - 1 do
        local h = ("model.layers.%d."):format(layer)
        add(h .. "input_layernorm.weight", { form.width }, m:floats(form.ln_1.weight, layer))
        for i, name in ipairs { "q_proj", "k_proj", "v_proj" } do
            add_linear(add, m, h .. "self_attn." .. name, form.qkv[i], layer, attention)
        end
        add_linear(add, m, h .. "self_attn.o_proj", form.out, layer, attention)
        add(h .. "post_attention_layernorm.weight", { form.width }, m:floats(form.ln_2.weight, layer))
        add_linear(add, m, h .. "mlp.gate_proj", form.gate, layer, mlp)
        add_linear(add, m, h .. "mlp.up_proj", form.up, layer, mlp)
        add_linear(add, m, h .. "mlp.down_proj", form.down, layer, mlp)
    end
    add("model.norm.weight", { form.width }, m:floats(form.ln_f.weight))
    if form.head then add_linear(add, m, "lm_head", form.head, 0, false) end
    return { architectures = { "LlamaForCausalLM" }, model_type = "llama", hidden_size = form.width,
        intermediate_size = form.up.out, num_hidden_layers = form.layers, num_attention_heads = form.heads,
        num_key_value_heads = form.kv_heads, head_dim = form.head_width, hidden_act = form.activation,
        max_position_embeddings = form.context, rms_norm_eps = form.eps, rope_theta = form.base,
        rope_parameters = { rope_type = "default", rope_theta = form.base }, attention_bias = attention,
        mlp_bias = mlp, attention_dropout = form.drops.attention }
end

function WRITERS.bert(m, form, add)
    local e, types = "bert.embeddings.", form.wtt
    add(e .. "word_embeddings.weight", form.wte.shape, m:floats(form.wte))
    add(e .. "position_embeddings.weight", form.wpe.shape, m:floats(form.wpe))
    add(e .. "token_type_embeddings.weight", { types and types.shape[1] or 1, form.width },
        types and m:floats(types) or ("\0"):rep(4 * form.width))
    add_norm(add, m, e .. "LayerNorm", form.ln_0, form.width)
    for layer = 0, form.layers - 1 do
        local h = ("bert.encoder.layer.%d."):format(layer)
        local projections = weights.projections(m, form, layer)
        for i, name in ipairs { "query", "key", "value" } do
            add(h .. "attention.self." .. name .. ".weight", { form.width, form.width }, projections[i].weight)
            add(h .. "attention.self." .. name .. ".bias", { form.width }, projections[i].bias)
        end
        add_linear(add, m, h .. "attention.output.dense", form.out, layer, true)
        add_norm(add, m, h .. "attention.output.LayerNorm", form.ln_1, form.width, layer)
        add_linear(add, m, h .. "intermediate.dense", form.up, layer, true)
        add_linear(add, m, h .. "output.dense", form.down, layer, true)
        add_norm(add, m, h .. "output.LayerNorm", form.ln_2, form.width, layer)
    end
    add_linear(add, m, "bert.pooler.dense", form.pooler, 0, true)
    add_linear(add, m, "classifier", form.head, 0, true)
    local labels, ids = {}, {}
    for class = 0, form.head.out - 1 do
        labels[("%d"):format(class)], ids["LABEL_" .. class] = "LABEL_" .. class, class
    end
    return { architectures = { "BertForSequenceClassification" }, model_type = "bert", hidden_size = form.width,
        num_hidden_layers = form.layers, num_attention_heads = form.heads, intermediate_size = form.up.out,
        hidden_act = form.activation, max_position_embeddings = form.wpe.shape[1], layer_norm_eps = form.eps,
        type_vocab_size = types and types.shape[1] or 1, hidden_dropout_prob = form.drops.hidden or 0.0,
        attention_probs_dropout_prob = form.drops.attention, classifier_dropout = form.drops.classifier or 0.0,
        id2label = labels, label2id = ids }
end

-- The text of config.json. Without ids of a first and a last token, transformers would take those of its own models.
local function config_text(config)
    local text = host.json(config) .. "\n"
    return config.bos_token_id and text or text:gsub("^{", '{\n  "bos_token_id": null,\n  "eos_token_id": null,', 1)
end

--- Writes the model m (model.lua) into the folder; vocab: the option --vocab, or nil. Returns a line for people.
return function(m, folder, vocab)
    local form = forms.find(m.g, { "gpt2", "llama", "bert" }, "--hf")
    local tensors, add = collector()
    local config = WRITERS[form.name](m, form, add)
    config.vocab_size, config.torch_dtype = form.wte.shape[1], "float32"
    config.tie_word_embeddings = form.name ~= "bert" and not form.head
    local files = tokenizer.hf(m, form, vocab)
    for name, id in ordered.each(files.ids) do config[name] = id end
    files.list:set("config.json", config_text(config))
    files.list:set("model.safetensors", safetensors.bytes(tensors, { format = "pt" }))
    local made, message = host.folder(folder)
    if not made then diag.fail(folder, message, { kind = "environment" }) end
    for name, bytes in files.list:each() do written(folder .. "/" .. name, bytes) end
    return ("%s: %s, %d tensors, %s"):format(diag.escape(folder), config.architectures[1], tensors:size(), files.said)
end
