-- Files of parameters: files of other writers give exactly their values, mismatches are named, and gagen's files open
-- in Python's safetensors package.
-- Needs GAGEN_DATA/safetensors for the files of others, python3 with safetensors for the last tests.
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local function spec(data, model, more)
    return ([[
data       { "csv", train = "%s", target = "last" }
batch      (3)
accumulate (4)
model      { %s }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 40, seed = 3 }
%s]]):format(data, model, more or "")
end

local MLP = 'linear "fc1" { 20 }, relu {}, linear "fc2" { 10 }'

local function folder_of_files(t)
    local data = t.environment("GAGEN_DATA")
    local folder = data and data .. "/safetensors"
    if not folder or host.exists(folder) ~= "folder" then t.not_run("GAGEN_DATA/safetensors is not there") end
    return folder
end

-- A program whose model has the tensors of mlp_with_metadata.safetensors: 10 inputs, 10 classes.
local function mlp(t, precision)
    local programs = t.load("tests/lua/programs.lua")(t)
    local rows = {}
    for i = 1, 30 do
        local row = {}
        for k = 1, 10 do row[k] = tostring((i * k) % 7) end
        rows[i] = table.concat(row, ",") .. "," .. (i - 1) % 10
    end
    t.write(programs.folder() .. "/data/ten.csv", table.concat(rows, "\n") .. "\n")
    return programs, programs.build("mlp_" .. precision, spec("ten.csv", MLP, ('precision "%s"\n'):format(precision)))
end

-- The parameters that a program starts with after --init FILE, or without a file; more options at positions.
local function initial(t, programs, p, file, ...)
    local out = t.temp() .. "/initial.safetensors"
    local options = file and { "--init", file, ... } or {}
    local result = programs.train(p, { "--cycles", 1, "--save-init", out, table.unpack(options) })
    return programs.tensors(out), result.err
end

local function same_values(t, found, expected)
    for name, tensor in next, expected do t.equal(found[name].values, tensor.values, name) end
end

-- -- files of this test -------------------------------------------------------------------------

local CODES = {                                    -- bytes of numbers that all these types can hold
    F64 = function(v) return string.pack("<d", v) end,
    F32 = function(v) return string.pack("<f", v) end,
    BF16 = function(v) return string.pack("<f", v):sub(3) end,
    F16 = function(v)
        if v == 0 then return "\0\0" end
        local size, exponent = math.abs(v), 15
        while size >= 2 do size, exponent = size / 2, exponent + 1 end
        while size < 1 do size, exponent = size * 2, exponent - 1 end
        return string.pack("<I2", (v < 0 and 0x8000 or 0) + exponent * 1024 + math.tointeger((size - 1) * 1024))
    end,
    I32 = function(v) return string.pack("<i4", math.floor(v)) end,
}

-- tensors: { name, dtype, shape, first }: value i is (first + i) / 8 modulo 8; or a function of i for it.
local function write_file(t, path, tensors)
    local header, data, at = {}, {}, 0
    for i, one in ipairs(tensors) do
        local n, bytes = 1, {}
        for _, size in ipairs(one[3]) do n = n * size end
        local value = type(one[4]) == "function" and one[4] or function(k) return ((one[4] + k) % 64 - 32) / 8 end
        for k = 1, n do bytes[k] = CODES[one[2]](value(k)) end
        data[i] = table.concat(bytes)
        header[i] = ('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(one[1], one[2],
            table.concat(one[3], ","), at, at + #data[i])
        at = at + #data[i]
    end
    local text = "{" .. table.concat(header, ",") .. "}"
    t.write(path, string.pack("<I8", #text) .. text .. table.concat(data))
end

local function mlp_file(t, dtype, more)
    local path, list = t.temp() .. "/init.safetensors", {
        { "fc2.weight", dtype, { 10, 20 }, 1 }, { "fc1.bias", dtype, { 20 }, 2 },
        { "fc1.weight", dtype, { 20, 10 }, 3 }, { "fc2.bias", dtype, { 10 }, 4 } }
    for _, one in ipairs(more or {}) do list[#list + 1] = one end
    write_file(t, path, list)
    return path
end

-- -- reading ------------------------------------------------------------------------------------

for _, precision in ipairs { "f32", "f64" } do
    add("--init from F16, BF16, F32 and F64 into " .. precision, function(t)
        local programs, p = mlp(t, precision)
        local expected = programs.tensors(mlp_file(t, "F64"))
        for _, dtype in ipairs { "F16", "BF16", "F32", "F64" } do
            local found, err = initial(t, programs, p, mlp_file(t, dtype))
            t.equal(err, "ready\n")
            t.equal(found["fc1.weight"].dtype, precision:upper())
            same_values(t, found, expected)
        end
    end)
end

add("--init ignores tensors that are not in the model, and names them", function(t)
    local programs, p = mlp(t, "f32")
    local file = mlp_file(t, "F32", { { "fc3.mask", "I32", { 2, 2 }, 0 }, { "fc3.step", "I32", {}, 0 } })
    local _, err = initial(t, programs, p, file)
    t.equal(err, file .. ": 2 tensors are not in the model and are ignored: 'fc3.mask', 'fc3.step'\nready\n")
end)

add("--fresh keeps the initial values of a parameter of another shape", function(t)
    local programs, p = mlp(t, "f32")
    local file = t.temp() .. "/head_of_3.safetensors"
    write_file(t, file, { { "fc1.weight", "F32", { 20, 10 }, 1 }, { "fc1.bias", "F32", { 20 }, 2 },
        { "fc2.weight", "F32", { 3, 20 }, 3 }, { "fc2.bias", "F32", { 3 }, 4 } })
    local found, err = initial(t, programs, p, file, "--fresh", "fc2.*")
    t.equal(err, file .. ": parameters of another shape in it keep their initial values (2): 'fc2.weight' has shape "
        .. "(3, 20), (10, 20) expected, 'fc2.bias' has shape (3), (10) expected\nready\n")
    local stored, own = programs.tensors(file), initial(t, programs, p)
    for name in next, own do
        t.equal(found[name].values, (name:find "^fc1" and stored or own)[name].values, name)
    end
end)

add("--init names what does not fit", function(t)
    local programs, p = mlp(t, "f32")
    local file = t.temp() .. "/other.safetensors"
    write_file(t, file, { { "fc1.weight", "F32", { 10, 20 }, 0 }, { "fc1.bias", "I32", { 20 }, 0 },
        { "fc2.bias", "F32", { 10 }, 0 }, { "fc9.bias", "F32", { 10 }, 0 } })
    local result = programs.train(p, { "--init", file, status = 1 })
    t.equal(result.err, "mlp_f32: " .. file .. ": does not fit the model, nothing loaded: "
        .. "'fc1.weight' has shape (10, 20), (20, 10) expected; 'fc1.bias' is I32, F16, BF16, F32 or F64 "
        .. "expected; 'fc2.weight' is missing\n")
end)

-- -- files of others ----------------------------------------------------------------------------

add("a trained MLP of another writer", function(t)
    local file = folder_of_files(t) .. "/mlp_with_metadata.safetensors"
    for _, precision in ipairs { "f32", "f64" } do
        local programs, p = mlp(t, precision)
        local found, err = initial(t, programs, p, file)
        t.equal(err, "ready\n")
        same_values(t, found, programs.tensors(file))
    end
end)

local HALF = {
    F16 = function(bits)
        local exponent, mantissa = bits // 1024 % 32, bits % 1024
        local size = exponent > 0 and (1024 + mantissa) * 2.0 ^ (exponent - 25) or mantissa * 2.0 ^ -24
        return bits >= 0x8000 and -size or size
    end,
    BF16 = function(bits) return string.unpack("<f", "\0\0" .. string.pack("<I2", bits)) end,
}

add("a file of mixed types", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local file = folder_of_files(t) .. "/mixed_dtypes_f16_bf16_u16_u8_i32.safetensors"
    local q, embed = "model.layers.0.self_attn.q_proj", "model.embed_tokens"
    local p = programs.build("mixed_types", spec("tiny.csv",
        ('linear "%s" { 4, bias = false }, linear "%s" { 6, bias = false }'):format(q, embed)))
    local found, err = initial(t, programs, p, file)
    t.match(err, ": 5 tensors are not in the model and are ignored: [^\n]*'lm_head.weight'[^\n]*\nready\n$")
    local text = host.read(file)
    local start = 8 + string.unpack("<I8", text)
    local header = t.load("tests/lua/json.lua").read(text:sub(9, start))
    for name, dtype in next, { [q .. ".weight"] = "BF16", [embed .. ".weight"] = "F16" } do
        local values, first, last = {}, table.unpack(header[name].data_offsets)
        t.equal(header[name].dtype, dtype)
        for at = start + first + 1, start + last, 2 do
            values[#values + 1] = HALF[dtype](string.unpack("<I2", text, at))
        end
        t.equal(found[name].values, values, name)
    end
    p = programs.build("mixed_integers", spec("tiny.csv", 'linear "lm_head" { 4, bias = false }'))
    local result = programs.train(p, { "--init", file, status = 1 })
    t.match(result.err, ": 'lm_head.weight' has shape %(2, 4%), %(4, 4%) expected; %-%-fresh GLOB keeps the initial "
        .. "values of names of GLOB\n$")
end)

local HEADER = [[
data       %s
batch      (4)
accumulate (2)
]]
local FOOTER = [[
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-3 }
train      { updates = 4, seed = 3 }
]]

-- A spec whose names and shapes are those of the file: it starts with exactly its values, and trains.
local function takes_all(t, name, file, data, model)
    local programs = t.load("tests/lua/programs.lua")(t)
    file = folder_of_files(t) .. "/" .. file
    local p = programs.build("init_" .. name, HEADER:format(data) .. model .. FOOTER)
    local found, err = initial(t, programs, p, file)
    t.equal(err, "ready\n")
    local expected, count = programs.tensors(file), 0
    same_values(t, found, expected)
    for tensor in next, found do
        assert(expected[tensor], tensor .. " is not in the file")
        count = count + 1
    end
    for _, event in ipairs(programs.events(p, { "--init", file })) do
        if event.event == "update" then t.equal(event.loss - event.loss, 0.0, "loss " .. event.loss) end
    end
    return count
end

-- Text of the first `letters` letters.
local function text_data(t, letters)
    local programs, text = t.load("tests/lua/programs.lua")(t), {}
    for i = 1, 600 do text[i] = string.char(97 + (i * i + i // 7) % letters) end
    for i = 1, letters do text[i] = string.char(96 + i) end
    t.write(("%s/data/letters_%d.txt"):format(programs.folder(), letters), table.concat(text))
    return ('{ "text", train = "letters_%d.txt", context = 8 }'):format(letters)
end

add("a GPT-2 of another writer", function(t)
    t.equal(takes_all(t, "gpt2", "tiny_gpt2.safetensors", text_data(t, 21), [[
model {
    embedding "wte" { 21, 2 }, positions "wpe" { 1024 },
    times(1) "h" {
        residual { layernorm "ln_1" {}, block "attn" { linear "c_attn" { 6, store = "in_out" },
            attend { heads = 1, causal = true }, linear "c_proj" { 2, store = "in_out" } } },
        residual { layernorm "ln_2" {}, block "mlp" { linear "c_fc" { 8, store = "in_out" }, gelu { "tanh" },
            linear "c_proj" { 2, store = "in_out" } } },
    },
    layernorm "ln_f" {}, unembed { "wte" },
}
]]), 16)
end)

add("a Llama of another writer", function(t)
    t.equal(takes_all(t, "llama", "llama_like_sorted_keys_metadata.safetensors", text_data(t, 4), [[
local function project(name) return linear(name) { 4, bias = false } end
model(function(batch)
    local x = embedding "model.embed_tokens" { 4, 4 } (batch.input)
    x = times(2) "model.layers" (function(x)
        local h = rmsnorm "input_layernorm" {} (x)
        local q = rotary { heads = 1 } (project("self_attn.q_proj")(h))
        local k = rotary { heads = 1 } (project("self_attn.k_proj")(h))
        local a = attend { heads = 1, causal = true } (q, k, project("self_attn.v_proj")(h))
        x = x + project("self_attn.o_proj")(a)
        h = rmsnorm "post_attention_layernorm" {} (x)
        return x + project("mlp.down_proj")(silu {} (project("mlp.gate_proj")(h)) * project("mlp.up_proj")(h))
    end) (x)
    return project("lm_head")(rmsnorm "model.norm" {} (x))
end)
]]), 21)
end)

add("a BERT of another writer", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    write_file(t, programs.folder() .. "/data/sentences.safetensors", {
        { "ids", "I32", { 40, 6 }, function(i) return i * i % 256 end },
        { "types", "I32", { 40, 6 }, function(i) return i // 3 % 2 end },
        { "label", "I32", { 40 }, function(i) return i % 32 end } })
    t.equal(takes_all(t, "bert", "tiny_bert_2layer.safetensors",
        '{ "tensors", train = "sentences.safetensors", target = "label" }', [[
model(function(batch)
    local x = embedding "embeddings.word_embeddings" { 256, 32 } (batch.ids)
        + embedding "embeddings.token_type_embeddings" { 2, 32 } (batch.types)
    x = layernorm "embeddings.LayerNorm" { eps = 1e-12 } (positions "embeddings.position_embeddings" { 128 } (x))
    x = times(2) "encoder.layer" (function(x)
        local q, k = linear "attention.self.query" { 32 } (x), linear "attention.self.key" { 32 } (x)
        local a = attend { heads = 4 } (q, k, linear "attention.self.value" { 32 } (x))
        x = layernorm "attention.output.LayerNorm" { eps = 1e-12 } (x + linear "attention.output.dense" { 32 } (a))
        local f = linear "output.dense" { 32 } (gelu {} (linear "intermediate.dense" { 64 } (x)))
        return layernorm "output.LayerNorm" { eps = 1e-12 } (x + f)
    end) (x)
    return pick { axis = 2, index = 1 } (x)
end)
]]), 37)
end)

add("all names of a file that does not fit are compared", function(t)
    local programs, p = mlp(t, "f32")
    local folder, count = folder_of_files(t), 0
    for _, name in ipairs(host.list(folder)) do
        if name:find("%.safetensors$") and not name:find("^mlp") then
            local result = programs.train(p, { "--init", folder .. "/" .. name, status = 1 })
            t.match(result.err, "^mlp_f32: [^\n]*" .. name:gsub("%p", "%%%0")
                .. ": does not fit the model, nothing loaded: [^\n]*'fc1%.weight' [^\n]*; [^\n]*\n$")
            t.contains(result.err, name:find("burn") and "'fc1.weight' has shape (32, 11616), (20, 10) expected"
                or "'fc2.bias' is missing")
            count = count + 1
        end
    end
    assert(count >= 5, "only " .. count .. " files there")
end)

-- -- Python -------------------------------------------------------------------------------------

local function python(t, ...)
    local result = t.run { "python3", t.root .. "/tests/reference/safetensors_files.py", ... }
    if result.status == 5 then t.not_run(result.err:gsub("\n$", "")) end
    t.equal({ result.status, result.err }, { 0, "" })
    return result.out
end

-- name, dtype, shape and every value, as the script prints them.
local function listing(t, programs, file)
    local text = host.read(file)
    local header = t.load("tests/lua/json.lua").read(text:sub(9, 8 + string.unpack("<I8", text)))
    local lines = {}
    for name, tensor in next, programs.tensors(file) do
        local values = {}
        for i, v in ipairs(tensor.values) do values[i] = ("%.17g"):format(v) end
        lines[#lines + 1] = ("%s %s (%s) %s"):format(name, tensor.dtype,
            table.concat(header[name].shape, ","), table.concat(values, " "))
    end
    table.sort(lines)
    return table.concat(lines, "\n") .. "\n"
end

add("gagen's files read by Python's safetensors", function(t)
    for _, precision in ipairs { "f32", "f64" } do
        local programs, p = mlp(t, precision)
        local checkpoint, init = t.temp(), t.temp() .. "/init.safetensors"
        programs.train(p, { "--stop-micro", 6, "--checkpoint", checkpoint, "--save-init", init, status = 75 })
        local dump = programs.dump(p, { "--cycles", 2 })
        local folder, count = checkpoint .. "/cycle-000000001-r2/", 0
        for _, file in ipairs { init, folder .. "model.safetensors", folder .. "optimizer.safetensors",
            folder .. "gradient-1of1.safetensors", dump .. "/parameters.safetensors",
            dump .. "/gradients.safetensors", dump .. "/state.safetensors" } do
            t.equal(python(t, "show", file), listing(t, programs, file), file)
            count = count + 1
        end
        t.equal(count, 7)
    end
end)

add("files of Python's safetensors read by gagen", function(t)
    local programs, p = mlp(t, "f64")
    for _, dtype in ipairs { "float16", "float32", "float64" } do
        local file = t.temp() .. "/python.safetensors"
        python(t, "write", file, dtype)
        local found, err = initial(t, programs, p, file)
        t.equal(err, "ready\n")
        local out = t.temp() .. "/ours.safetensors"
        programs.train(p, { "--cycles", 1, "--init", file, "--save-init", out })
        local values = python(t, "show", file):gsub(" F%d+ ", " F64 ")
        t.equal(listing(t, programs, out), values, dtype)
        assert(found["fc1.weight"].count == 200)
    end
end)

return tests
