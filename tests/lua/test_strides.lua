-- Values whose rows lie further apart than they are long (passes/strides.lua), on the device library: 67 logits, 72
-- apart. Rows that leave the device lie behind each other.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local U = 2.0 ^ -8      -- by which a rounding to bf16 changes a number at most

local SPEC = [[
data       { "text", train = "strides.txt", context = 24, split = { eval = 8 } }
batch      (4)
accumulate (2)
precision  "bf16"
model(function(batch)
    local x = positions "wpe" { 24 } (embedding "wte" { 67, 40 } (batch.input))
    return linear "head" { 67 } (layernorm "ln" {} (x))
end)
init       { { "*w*", normal = 0.2 } }
loss       { "cross_entropy", label_smoothing = 0.1 }
optimizer  { "sgd", lr = 0.1 }
train      { updates = 4, seed = 3, allow = { "random_norm_weights" } }
eval       { every = 1, metrics = { "loss", "accuracy", "top5" } }
]]

local function build(t, name, more, how)
    local programs, environment = devices.open(t)
    local bytes = {}
    for k = 1, 1200 do bytes[k] = string.char(97 + (k * k + k // 7) % 23) end
    t.write(programs.folder() .. "/data/strides.txt", table.concat(bytes))
    return programs.build("strides_" .. name, SPEC .. more, how), programs, environment
end

-- A dump of two cycles, and the metrics of their evaluations.
local function trained(t, programs, p, env)
    local folder, metrics = t.temp(), {}
    for _, event in ipairs(programs.events(p, { "--cycles", 2, "--dump", folder, env = env })) do
        for _, name in ipairs(event.event == "eval" and { "loss", "accuracy", "top5" } or {}) do
            metrics[#metrics + 1] = assert(event[name], name)
        end
    end
    return folder, metrics
end

for _, case in ipairs { { "whole", "" }, { "chunked", 'memory { logits = "chunked", logits_rows = 40 }\n' } } do
    local name, more = case[1], case[2]
    add(name .. " logits that lie apart train and are measured as on the C target", function(t)
        local p, programs, environment = build(t, name, more .. 'target "cuda"\n')
        t.contains(host.read(p.folder .. "/kernels.cu"), "C = 67, ROW = 72, FEW = 8")
        local found, measured = trained(t, programs, p, environment(devices.checked(1)))
        local expected, known = trained(t, programs, (build(t, name .. "_c", more)))
        programs.close(found, expected, U, { "parameters", "gradients" }, programs.distance)
        assert(#known >= 4 and #measured == #known, #known)
        for i, value in ipairs(known) do t.near(measured[i], value, 0.01) end
    end)
end

add("outputs, tokens and probes are those of rows behind each other, bit by bit", function(t)
    local programs, environment = devices.open(t)
    local start, seen = t.temp() .. "/start.safetensors", {}
    for i, row in ipairs { 72, 67 } do
        local options = i == 2 and { "--without", "strides" } or nil
        local p = build(t, "row_" .. row, 'target "cuda"\n', { probe = true, options = options })
        t.contains(host.read(p.folder .. "/kernels.cu"), ("C = 67, ROW = %d, FEW = 8"):format(row))
        local env, outputs = environment(), t.temp() .. "/outputs.npy"
        if i == 1 then programs.train(p, { "--cycles", 1, "--save-init", start, env = env }) end
        programs.train(p, { "--predict", programs.folder() .. "/data/strides.txt", "--init", start, "--out", outputs,
            env = env })
        local sampled = programs.train(p, { "--sample", 30, "--temperature", 0, "--init", start, "--prompt", "abc",
            env = env })
        local probed = programs.dump({ train = p.probe }, { "--cycles", 1, "--init", start, env = env })
        local logits = programs.tensors(probed .. "/micro-1.safetensors").head_y
        t.equal(logits.count, 4 * 24 * 67)
        seen[i] = host.sha256(host.read(outputs)) .. sampled.out .. table.concat(logits.values, " ")
        t.equal(host.read(outputs):match "'shape': (%b())", "(50, 24, 67)")
    end
    t.equal(seen[1], seen[2])
end)

return tests
