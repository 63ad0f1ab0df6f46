-- Runs as programs leave them, for tests of `gagen export`: their folders are written without any program; the
-- parameters of the models are those of tests/reference.
local exported = {}

local json = dofile "tests/lua/json.lua"

local TOKENS = 'data { "tokens", train = "seven.bin", context = 8 }\n'

local REST = [[

batch      (2)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 4 }
]]

-- GPT-2 whose layers are called otherwise than Hugging Face's, with weights (out, in), three projections, no bias in
-- a norm.
local OTHER_GPT = TOKENS .. [[
model(function(batch)
    local x = dropout(0.2)(positions "places" { 9 } (embedding "words" { 13, 6 } (batch.input)))
    x = times(2) "b" (function(x)
        local n = layernorm "n1" { bias = false, eps = 1e-4 } (x)
        local a = attend { heads = 2, causal = true, dropout = 0.1 } (linear "q" { 6 } (n),
            linear "k" { 6, bias = false } (n), linear "v" { 6 } (n))
        x = x + linear "o" { 6 } (a)
        return linear "down" { 6 } (gelu {} (linear "up" { 10 } (layernorm "n2" { eps = 1e-4 } (x)))) + x
    end) (x)
    return linear "head" { 13, bias = false } (layernorm "last" { eps = 1e-4 } (x))
end)]] .. REST

exported.specs = {
    gpt = TOKENS .. [[
local function dense(name, out) return linear(name) { out, store = "in_out" } end
model {
    block "transformer" {
        embedding "wte" { 13, 12 }, positions "wpe" { 8 },
        times(2) "h" {
            residual { layernorm "ln_1" {}, block "attn" {
                dense("c_attn", 36), attend { heads = 3, causal = true }, dense("c_proj", 12) } },
            residual { layernorm "ln_2" {}, block "mlp" {
                dense("c_fc", 48), gelu { "tanh" }, dense("c_proj", 12) } },
        },
        layernorm "ln_f" {},
    },
    unembed { "transformer.wte" },
}]] .. REST,
    llama = TOKENS .. [[
local function dense(name, out) return linear(name) { out, bias = false } end
model(function(batch)
    local x = embedding "model.embed_tokens" { 13, 16 } (batch.input)
    x = times(2) "model.layers" (function(x)
        local h = rmsnorm "input_layernorm" {} (x)
        local q = rotary { heads = 4, base = 500 } (dense("self_attn.q_proj", 16)(h))
        local k = rotary { heads = 2, base = 500 } (dense("self_attn.k_proj", 8)(h))
        local v = dense("self_attn.v_proj", 8)(h)
        x = x + dense("self_attn.o_proj", 16)(attend { heads = 4, kv_heads = 2, causal = true } (q, k, v))
        h = rmsnorm "post_attention_layernorm" {} (x)
        local gate = silu {} (dense("mlp.gate_proj", 20)(h))
        return x + dense("mlp.down_proj", 16)(gate * dense("mlp.up_proj", 20)(h))
    end) (x)
    return dense("lm_head", 13)(rmsnorm "model.norm" {} (x))
end)]] .. REST,
    other = OTHER_GPT,
}

-- 100 tokens from 0 to 12, as llm.c's files have them.
local function token_file()
    local list = {}
    for i = 0, 99 do list[i + 1] = string.pack("<I2", i * 7 % 13) end
    return string.pack("<i4i4i4", 20240520, 1, 100) .. ("\0"):rep(1012) .. table.concat(list)
end

--- The tensors of a safetensors file by name: { shape, values }, and its header.
function exported.tensors(path)
    local bytes = assert(host.read(path))
    local start = 8 + string.unpack("<I8", bytes)
    local header, list = json.read(bytes:sub(9, start)), {}
    for name, entry in next, header do
        if name ~= "__metadata__" then
            local values, at = {}, start + entry.data_offsets[1] + 1
            local format, size = entry.dtype == "F64" and "<d" or "<f", entry.dtype == "F64" and 8 or 4
            for i = 1, (entry.data_offsets[2] - entry.data_offsets[1]) // size do
                values[i], at = string.unpack(format, bytes, at)
            end
            list[name] = { shape = entry.shape, values = values }
        end
    end
    return list, header
end

--- The bytes of a safetensors file of these tensors: name -> { shape, values }, in f32.
function exported.bytes(tensors)
    local header, data, at = {}, {}, 0
    for name, tensor in next, tensors do
        local bytes = {}
        for i, v in ipairs(tensor.values) do bytes[i] = string.pack("<f", v) end
        data[#data + 1] = table.concat(bytes)
        header[#header + 1] = ('"%s":{"dtype":"F32","shape":[%s],"data_offsets":[%d,%d]}'):format(name,
            table.concat(tensor.shape, ","), at, at + #data[#data])
        at = at + #data[#data]
    end
    local text = "{" .. table.concat(header, ",") .. "}"
    return string.pack("<I8", #text) .. text .. table.concat(data)
end

--- Tensors of these names, shapes and values in f32.
function exported.same(t, found, expected)
    for name, tensor in next, expected do
        if not found[name] then error("no tensor " .. name) end
        t.equal(found[name].shape, tensor.shape, name)
        for i, v in ipairs(tensor.values) do
            t.equal(found[name].values[i], (string.unpack("<f", string.pack("<f", v))), name .. " " .. i)
        end
    end
    for name in next, found do
        if not expected[name] then error("tensor " .. name .. " is not expected") end
    end
end

-- The crc32 of a text, bit by bit.
local function crc32(text)
    local register = 0xffffffff
    for i = 1, #text do
        register = register ~ text:byte(i)
        for _ = 1, 8 do register = register >> 1 ~ (register & 1) * 0xedb88320 end
    end
    return register ~ 0xffffffff
end

--- Writes a checkpoint with these tensors. more: text of fields of its manifest; averages: tensors of the optimizer.
function exported.checkpoint(t, run, name, tensors, micro, more, averages)
    local folder, list = ("%s/checkpoints/%s"):format(run, name), {}
    for _, file in ipairs { { "model", tensors }, averages and { "optimizer", averages } } do
        local bytes = exported.bytes(file[2])
        t.write(("%s/%s.safetensors"):format(folder, file[1]), bytes)
        list[#list + 1] = ('{"name":"%s.safetensors","bytes":%d,"checksums":["%08x"]}'):format(file[1], #bytes,
            crc32(bytes))
    end
    t.write(folder .. "/manifest.json", ('{"format":1,"micro":%d,"cycle":%d,"r":0,%s"files":[%s]}\n'):format(micro,
        micro, more or "", table.concat(list, ",")))
end

--- A run of the spec with one checkpoint of these tensors: the folder around it, export(words...), the run's folder.
function exported.open(t, spec, tensors)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.root .. "/" .. t.temp()
    t.write(folder .. "/data/seven.bin", token_file())
    t.write(folder .. "/data/hello.txt", ("hello world\n"):rep(20))
    local run = folder .. "/out/p/runs/001"
    t.write(run .. "/spec.lua", spec)
    t.write(folder .. "/out/p/spec.lua", spec)
    t.write(run .. "/run.json", ('{"run": "001", "program": "p", "spec_sha256": "%s", "settings": {"program": '
        .. '"gagen p.lua --set \'optimizer.lr=0.5\'"}}\n'):format(host.sha256(spec .. "\n--set optimizer.lr=0.5")))
    if tensors then exported.checkpoint(t, run, "cycle-000000004", tensors, 4) end
    return folder, function(...)
        return programs.gagen { "export", cwd = folder, env = { "GAGEN_DATA=" .. folder .. "/data" }, "out/p", ... }
    end, run
end

--- The tensors of tests/reference/NAME/init.safetensors.
function exported.reference(name) return (exported.tensors("tests/reference/" .. name .. "/init.safetensors")) end

return exported
