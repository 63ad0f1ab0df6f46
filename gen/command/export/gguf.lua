-- gguf: a GPT-2 or a Llama as a GGUF file, which llama.cpp opens.
local diag = require "base.diag"
local file = require "command.export.gguf_file"
local forms = require "command.export.forms"
local ordered = require "base.ordered"
local tokenizer = require "command.export.tokenizer"
local weights = require "command.export.weights"
local written = require "command.written"

-- Collects tensors of F32: add(name, shape, bytes); those of several axes become F16 if `dtype` is that, but for tables
-- of positions, which llama.cpp reads in F32.
local function collector(dtype, path)
    local tensors = ordered.map()
    return tensors, function(name, shape, bytes)
        local narrow = dtype == "F16" and #shape > 1 and name ~= "position_embd.weight"
        local stored = bytes
        if narrow then stored = host.floats(bytes, 1, #bytes // 4, "F32", "F16") end
        if not stored then
            diag.fail(path, ("'%s' has a number beyond 65504, which f16 cannot hold: expected --precision f32")
                :format(name), {})
        end
        tensors:set(name, { dtype = narrow and "F16" or "F32", shape = shape, bytes = stored })
    end
end

local function add_linear(add, m, name, part, layer, biased)
    add(name .. ".weight", { part.out, part.width }, weights.out_in(m, part, layer))
    if biased or part.bias then add(name .. ".bias", { part.out }, weights.bias(m, part, part.out, layer)) end
end

local function add_norm(add, m, name, part, width, layer, biased)
    add(name .. ".weight", { width }, m:floats(part.weight, layer))
    if biased then add(name .. ".bias", { width }, weights.bias(m, part, width, layer)) end
end

-- The rows of queries or keys as llama.cpp turns them: pairs (i, i + d/2) of a head stand side by side.
local function paired(bytes, heads, d)
    local rows, size = {}, #bytes // (heads * d)
    for head = 0, heads - 1 do
        for i = 0, d // 2 - 1 do
            for half = 0, 1 do
                local from = (head * d + half * (d // 2) + i) * size
                rows[#rows + 1] = bytes:sub(from + 1, from + size)
            end
        end
    end
    return table.concat(rows)
end

local WRITERS = {}

function WRITERS.gpt2(m, form, add)
    add("position_embd.weight", form.wpe.shape, m:floats(form.wpe))
    for layer = 0, form.layers - 1 do
        local b = ("blk.%d."):format(layer)
        add_norm(add, m, b .. "attn_norm", form.ln_1, form.width, layer, true)
        local list = weights.projections(m, form, layer)
        local function joint(field)
            return table.concat(ordered.collect(list, function(part) return part[field] end))
        end
        add(b .. "attn_qkv.weight", { 3 * form.width, form.width }, joint "weight")
        add(b .. "attn_qkv.bias", { 3 * form.width }, joint "bias")
        add_linear(add, m, b .. "attn_output", form.out, layer, true)
        add_norm(add, m, b .. "ffn_norm", form.ln_2, form.width, layer, true)
        add_linear(add, m, b .. "ffn_up", form.up, layer, true)
        add_linear(add, m, b .. "ffn_down", form.down, layer, true)
    end
    add_norm(add, m, "output_norm", form.ln_f, form.width, 0, true)
    return { { "attention.layer_norm_epsilon", "f32", form.eps } }, form.wpe.shape[1]
end

function WRITERS.llama(m, form, add)
    for layer = 0, form.layers - 1 do
        local b = ("blk.%d."):format(layer)
        add_norm(add, m, b .. "attn_norm", form.ln_1, form.width, layer)
        for i, part in ipairs(weights.projections(m, form, layer)) do
            local name, heads = b .. ({ "attn_q", "attn_k", "attn_v" })[i], part.out // form.head_width
            local function order(bytes) return i < 3 and paired(bytes, heads, form.head_width) or bytes end
            add(name .. ".weight", { part.out, form.width }, order(part.weight))
            if form.qkv[i].bias then add(name .. ".bias", { part.out }, order(part.bias)) end
        end
        add_linear(add, m, b .. "attn_output", form.out, layer)
        add_norm(add, m, b .. "ffn_norm", form.ln_2, form.width, layer)
        add_linear(add, m, b .. "ffn_gate", form.gate, layer)
        add_linear(add, m, b .. "ffn_up", form.up, layer)
        add_linear(add, m, b .. "ffn_down", form.down, layer)
    end
    add_norm(add, m, "output_norm", form.ln_f, form.width)
    return { { "attention.head_count_kv", "u32", form.kv_heads },
        { "attention.layer_norm_rms_epsilon", "f32", form.eps }, { "rope.freq_base", "f32", form.base },
        { "rope.dimension_count", "u32", form.head_width } }, form.context
end

-- llama.cpp computes each form with one activation.
local ACTIVATION = { gpt2 = "gelu_new", llama = "silu" }

local function check_activation(m, form)
    if form.activation ~= ACTIVATION[form.name] then
        local wanted = form.name == "gpt2" and 'gelu { "tanh" }' or "silu"
        diag.fail(form.down.node.at, ("export --gguf: the activation is %s, expected %s"):format(form.activation,
            wanted), { notes = { "llama.cpp has no other for this form" } })
    end
end

--- Writes the model m (model.lua) into the file at `path`; precision: "f32" or "f16"; vocab: the option --vocab, or
--- nil. Returns a line for people.
return function(m, path, precision, vocab)
    local form = forms.find(m.g, { "gpt2", "llama" }, "--gguf")
    check_activation(m, form)
    local tensors, add = collector(precision == "f16" and "F16" or "F32", path)
    add("token_embd.weight", form.wte.shape, m:floats(form.wte))
    local own, context = WRITERS[form.name](m, form, add)
    if form.head then add_linear(add, m, "output", form.head, 0) end
    local facts = { { "general.architecture", "text", form.name }, { "general.name", "text", m.program },
        { "general.file_type", "u32", precision == "f16" and 1 or 0 } }
    local function fact(name, kind, value) facts[#facts + 1] = { form.name .. "." .. name, kind, value } end
    fact("vocab_size", "u32", form.wte.shape[1])
    fact("context_length", "u32", context)
    fact("embedding_length", "u32", form.width)
    fact("block_count", "u32", form.layers)
    fact("feed_forward_length", "u32", form.up.out)
    fact("attention.head_count", "u32", form.heads)
    for _, one in ipairs(own) do fact(table.unpack(one)) end
    local said = tokenizer.gguf(m, form, vocab, facts)
    written(path, file.bytes(facts, tensors))
    return ("%s: %s, %d tensors, %s"):format(diag.escape(path), form.name, tensors:size(), said)
end
