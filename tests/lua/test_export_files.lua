-- `gagen export RUN --onnx | --gguf`: the files, read by readers of the test's own. The results of onnxruntime for such
-- files, and what the package gguf reads, are in tests/reference/exports/figures.txt.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local exported, fields = dofile "tests/lua/exported.lua", dofile "tests/lua/protobuf.lua"
local SPECS, reference = exported.specs, exported.reference

local function made(t, spec, tensors, option, name, ...)
    local folder, export = exported.open(t, spec, tensors)
    local result = export(option, name, ...)
    t.equal({ result.status, result.out }, { 0, "" }, result.err)
    return assert(host.read(folder .. "/" .. name)), result.err
end

local function floats(bytes)
    local values, at = {}, 1
    for i = 1, #bytes // 4 do values[i], at = string.unpack("<f", bytes, at) end
    return values
end

-- -- ONNX -----------------------------------------------------------------------------------------

-- The fields of a protobuf message: number -> array of values.
local function message(text)
    local by_number = {}
    for _, field in ipairs(fields(text)) do
        by_number[field[1]] = by_number[field[1]] or {}
        table.insert(by_number[field[1]], field[2])
    end
    return by_number
end

-- { inputs = names, output, op } of each node; the tensors by name: { dtype, shape, bytes }; the graph's fields.
local function onnx(t, text)
    local model = message(text)
    t.equal({ model[1][1], message(model[8][1])[2][1] }, { 8, 17 })
    local graph, nodes, tensors = message(model[7][1]), {}, {}
    for i, node in ipairs(graph[1]) do
        local f = message(node)
        nodes[i] = { inputs = f[1], output = f[2][1], op = f[4][1] }
    end
    for _, tensor in ipairs(graph[5]) do
        local f = message(tensor)
        tensors[f[8][1]] = { dtype = f[2][1], shape = f[1] or {}, bytes = f[9][1] }
    end
    return nodes, tensors, graph
end

-- Each input of a node is an input of the graph, a tensor or the output of a node before.
local function check_order(nodes, tensors, graph)
    local known = {}
    for _, value in ipairs(graph[11]) do known[message(value)[1][1]] = true end
    for name in next, tensors do known[name] = true end
    for _, node in ipairs(nodes) do
        for _, name in ipairs(node.inputs) do
            if name ~= "" and not known[name] then error(node.op .. ": " .. name .. " is not known") end
        end
        assert(not known[node.output], node.output)
        known[node.output] = true
    end
    assert(known[message(graph[12][1])[1][1]])
end

local function shape_of(value)
    local shape = message(message(message(message(value)[2][1])[1][1])[2][1])
    for i, dim in ipairs(shape[1]) do
        local f = message(dim)
        shape[i] = f[2] and f[2][1] or f[1][1]
    end
    return { table.unpack(shape, 1, #shape[1]) }
end

for _, name in ipairs { "gpt", "llama" } do
    add("onnx: " .. name .. ": nodes in order, the parameters, free rows", function(t)
        local text = made(t, SPECS[name], reference(name), "--onnx", "model.onnx")
        local nodes, tensors, graph = onnx(t, text)
        check_order(nodes, tensors, graph)
        t.equal({ shape_of(graph[11][1]), shape_of(graph[12][1]), #graph[11] },
            { { "rows", 8 }, { "rows", 8, 13 }, 1 })
        local found = {}
        for key, tensor in next, tensors do
            if not key:find "^constant_" then
                t.equal(tensor.dtype, 1)
                found[key] = { shape = tensor.shape, values = floats(tensor.bytes) }
            end
        end
        exported.same(t, found, reference(name))
        local counts = {}
        for _, node in ipairs(nodes) do counts[node.op] = (counts[node.op] or 0) + 1 end
        t.equal({ counts.Softmax, counts.Gather, counts.LayerNormalization or 0, counts.Sqrt or 0, counts.Cos or 0 },
            name == "gpt" and { 2, 1, 5, 0, 0 } or { 2, 1, 0, 5, 0 })
    end)
end

-- Ops of the catalog that a model may have and an evaluation does not compute as such.
local NOT_WRITTEN = { cross_entropy = "a loss", batchnorm_stats = "part of batchnorm" }

add("onnx: each op that a model may have is written", function()
    local ops, known = require "command.export.onnx_ops", require "catalog.catalog".load()
    for name, entry in known.ops:each() do
        if not entry.internal and not ops[name] and not NOT_WRITTEN[name] then error(name .. " is not written") end
    end
end)

add("onnx: what has no form there is refused by name", function(t)
    local spec = SPECS.gpt:gsub("model {", [[model(function(batch)
    local x = reshape { 8, 1, 1 } (positions "p" { 8 } (embedding "e" { 13, 1 } (batch.input)))
    return linear "head" { 13 } (reshape { 8, 3 } (adaptive_avgpool2d { { 1, 3 } } (reshape { 8, 1, 4 } (
        linear "l" { 4 } (x)))))
end)
local _ = {]])
    local function values(n)
        local list = {}
        for i = 1, n do list[i] = i / 8 end
        return list
    end
    local _, export = exported.open(t, spec, { ["p.weight"] = { shape = { 8, 1 }, values = values(8) },
        ["e.weight"] = { shape = { 13, 1 }, values = values(13) },
        ["head.bias"] = { shape = { 13 }, values = values(13) }, ["l.bias"] = { shape = { 4 }, values = values(4) },
        ["head.weight"] = { shape = { 13, 3 }, values = values(39) },
        ["l.weight"] = { shape = { 4, 1 }, values = values(4) } })
    local result = export("--onnx", "model.onnx")
    t.equal(result.status, 1)
    t.match(result.err, "export %-%-onnx: adaptive_avgpool2d of 1 x 4 places to 1 x 3 has no form in ONNX")
end)

-- -- GGUF -----------------------------------------------------------------------------------------

-- The facts and tensors of a GGUF file by name; a tensor: { shape, type, bytes }.
local function gguf(t, text)
    local magic, version, count, facts_count, at = string.unpack("<c4I4I8I8", text)
    t.equal({ magic, version }, { "GGUF", 3 })
    local FORMATS = { [4] = "<I4", [5] = "<i4", [6] = "<f", [7] = "<B", [8] = "<s8" }
    local facts, tensors = {}, {}
    for _ = 1, facts_count do
        local name, kind
        name, kind, at = string.unpack("<s8I4", text, at)
        if kind == 9 then
            local list, of, n = {}, nil, nil
            of, n, at = string.unpack("<I4I8", text, at)
            for i = 1, n do list[i], at = string.unpack(FORMATS[of], text, at) end
            facts[name] = list
        else
            facts[name], at = string.unpack(FORMATS[kind], text, at)
        end
    end
    for _ = 1, count do
        local name, axes
        name, axes, at = string.unpack("<s8I4", text, at)
        local shape, elements = {}, 1
        for i = axes, 1, -1 do
            shape[i], at = string.unpack("<I8", text, at)
            elements = elements * shape[i]
        end
        local kind, place
        kind, place, at = string.unpack("<I4I8", text, at)
        t.equal(place % 32, 0)
        tensors[name] = { shape = shape, type = kind, place = place, size = elements * (kind == 1 and 2 or 4) }
    end
    local start = at - 1 + -(at - 1) % 32
    for _, tensor in next, tensors do
        tensor.bytes = text:sub(start + tensor.place + 1, start + tensor.place + tensor.size)
        t.equal(#tensor.bytes, tensor.size)
    end
    return facts, tensors
end

-- The rows of a matrix in another order: row i of the result is row order(i), from 0.
local function rows_in_order(tensor, order)
    local rows, width, values = tensor.shape[1], tensor.shape[2], {}
    for i = 0, rows - 1 do
        for c = 1, width do values[#values + 1] = tensor.values[order(i) * width + c] end
    end
    return { shape = tensor.shape, values = values }
end

-- Names of llama.cpp for the tensors of the reference, and the order of its rows: in heads of 4 rows 0, 2, 1, 3.
local function llama_tensors()
    local own, list = reference "llama", {}
    list["token_embd.weight"], list["output.weight"] = own["model.embed_tokens.weight"], own["lm_head.weight"]
    list["output_norm.weight"] = own["model.norm.weight"]
    local function paired(i) return i // 4 * 4 + ({ 0, 2, 1, 3 })[i % 4 + 1] end
    for l = 0, 1 do
        local function of(name) return own[("model.layers.%d.%s.weight"):format(l, name)] end
        local b = ("blk.%d."):format(l)
        list[b .. "attn_q.weight"] = rows_in_order(of "self_attn.q_proj", paired)
        list[b .. "attn_k.weight"] = rows_in_order(of "self_attn.k_proj", paired)
        for name, from in next, { attn_v = "self_attn.v_proj", attn_output = "self_attn.o_proj",
            ffn_gate = "mlp.gate_proj", ffn_up = "mlp.up_proj", ffn_down = "mlp.down_proj",
            attn_norm = "input_layernorm", ffn_norm = "post_attention_layernorm" } do
            list[b .. name .. ".weight"] = of(from)
        end
    end
    return list
end

add("gguf: Llama in f32", function(t)
    local facts, tensors = gguf(t, (made(t, SPECS.llama, reference "llama", "--gguf", "p.gguf")))
    local found = {}
    for name, tensor in next, tensors do
        t.equal(tensor.type, 0)
        found[name] = { shape = tensor.shape, values = floats(tensor.bytes) }
    end
    exported.same(t, found, llama_tensors())
    t.near(facts["llama.attention.layer_norm_rms_epsilon"], 1e-6, 1e-12)
    facts["llama.attention.layer_norm_rms_epsilon"] = nil
    t.equal(facts, { ["general.architecture"] = "llama", ["general.name"] = "p", ["general.file_type"] = 0,
        ["llama.vocab_size"] = 13, ["llama.context_length"] = 8, ["llama.embedding_length"] = 16,
        ["llama.block_count"] = 2, ["llama.feed_forward_length"] = 20, ["llama.attention.head_count"] = 4,
        ["llama.attention.head_count_kv"] = 2, ["llama.rope.freq_base"] = 500.0,
        ["llama.rope.dimension_count"] = 4, ["tokenizer.ggml.model"] = "no_vocab" })
end)

-- The value of 16 bits of IEEE 754.
local function half(bits)
    local sign, exponent, fraction = bits >> 15, bits >> 10 & 31, bits & 1023
    local size = exponent == 0 and fraction * 2.0 ^ -24 or (1 + fraction / 1024) * 2.0 ^ (exponent - 15)
    return sign == 1 and -size or size
end

add("gguf: f16 is the nearest, for matrices alone", function(t)
    local text = made(t, SPECS.llama, reference "llama", "--gguf", "p.gguf", "--precision", "f16")
    local facts, tensors = gguf(t, text)
    t.equal(facts["general.file_type"], 1)
    for name, wanted in next, llama_tensors() do
        t.equal(tensors[name].type, #wanted.shape == 2 and 1 or 0, name)
        for i, value in ipairs(tensors[name].type == 1 and wanted.values or {}) do
            local bits = string.unpack("<I2", tensors[name].bytes, 2 * i - 1)
            local gap = math.abs(half(bits) - value)
            assert(gap <= math.abs(half(bits + 1) - value) and (bits & 0x7fff == 0
                or gap <= math.abs(half(bits - 1) - value)), name)
        end
    end
end)

add("gguf: GPT-2, weights as (out, in), positions in f32", function(t)
    local own = reference "gpt"
    local facts, tensors = gguf(t, (made(t, SPECS.gpt, own, "--gguf", "p.gguf", "--precision", "f16")))
    t.equal({ facts["general.architecture"], facts["gpt2.context_length"], facts["gpt2.feed_forward_length"] },
        { "gpt2", 8, 48 })
    t.equal({ tensors["position_embd.weight"].type, tensors["output.weight"] }, { 0 })
    t.equal(tensors["blk.1.attn_qkv.weight"].shape, { 36, 12 })
    local found, weight = tensors["blk.1.ffn_down.weight"], own["transformer.h.1.mlp.c_proj.weight"]
    t.equal({ found.shape, weight.shape }, { { 12, 48 }, { 48, 12 } })
    for row = 0, 11 do
        for column = 0, 47 do
            local bits = string.unpack("<I2", found.bytes, 2 * (row * 48 + column) + 1)
            t.near(half(bits), weight.values[column * 12 + row + 1], 1e-3)
        end
    end
end)

add("gguf: what f16 cannot hold and what llama.cpp does not compute is refused", function(t)
    local tensors = reference "llama"
    tensors["lm_head.weight"].values[5] = 70000
    local _, export = exported.open(t, SPECS.llama, tensors)
    local result = export("--gguf", "p.gguf", "--precision", "f16")
    t.equal(result.status, 1)
    t.match(result.err, "'output.weight' has a number beyond 65504, which f16 cannot hold: expected %-%-precision f32")
    t.equal(export("--gguf", "p.gguf").status, 0)
    t.match(export("--gguf", "p.gguf", "--precision", "f8").err, "%-%-precision: 'f8', expected f32 or f16")
    t.match(export("--onnx", "p.onnx", "--precision", "f16").err, "%-%-precision: %-%-onnx takes none, but %-%-gguf")
    _, export = exported.open(t, SPECS.llama:gsub("silu", "tanh"), tensors)
    t.match(export("--gguf", "p.gguf").err, "the activation is tanh, expected silu")
end)

return tests
