-- The program and the library that only predict (make predict): models of many kinds give the bits of --predict; what
-- they are built with, and what they refuse.
local tests = {}
local function add(name, f)
    tests[#tests + 1] = { name, function(t) f(t, t.load("tests/lua/predicted.lua")(t)) end }
end

local LINE = ("the quick brown fox jumps over the lazy dog. "):rep(9)

local GPT = [[
data       { "text", train = "predict/line.txt", context = 8, split = { eval = 4 } }
batch      (5)
model      { embedding "wte" { 28, 24 }, positions "wpe" { 8 },
             times(3) "h" {
                 residual { layernorm "ln" {}, linear "q" { 72 }, attend { heads = 2, causal = true, dropout = 0.2 },
                            linear "proj" { 24 } },
                 residual { layernorm "ln2" {}, linear "up" { 50 }, gelu { "tanh" }, dropout(0.1),
                            linear "down" { 24 } } },
             layernorm "ln_f" {}, %s }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2, groups = { { "h.0.*", frozen = true } } }
train      { updates = 12, seed = 3 }
]]

local function gpt(t, x, name, head, more, options)
    t.load("tests/lua/formats.lua")(t).write("predict/line.txt", LINE)
    return x.trained(name, GPT:format(head) .. (more or ""), { predict = true, options = options })
end

add("a language model: an output at each position; the ids that fill no window are left out", function(t, x)
    local p = gpt(t, x, "predict_gpt", 'linear "head" { 28 }')
    local folder = t.temp()
    t.write(folder .. "/text", LINE:sub(1, 8 * 6 + 3))
    local file = x.both(p, folder .. "/text")
    t.equal((x.read_npy(file)), "6, 8, 28")
    local said = x.predict(p, folder .. "/text", folder .. "/o.csv", { "--resume", "latest" }).err
    t.contains(said, "text: the last 3 ids fill no window of 8, and are left out")
    t.contains(x.read_csv(folder .. "/o.csv"), "output_0_0,output_0_1,")
    t.contains(host.read(folder .. "/o.csv"):match "^[^\n]+", ",output_7_27")
    t.write(folder .. "/text", "THE")
    t.contains(x.predict(p, folder .. "/text", folder .. "/o.csv", { status = 1 }).err, "3 ids give no window of 8")
    t.write(folder .. "/text", "THE QUICK")
    t.contains(x.predict(p, folder .. "/text", folder .. "/o.csv", { status = 1 }).err, "byte 0x54 at offset 0")
end)

add("in 16 bits, and with logits that are never whole, which make predict has whole", function(t, x)
    -- some profiles compute products of bf16 in blocks, where the order of a sum is another
    local p = gpt(t, x, "predict_half", 'unembed { "wte" }', 'precision "bf16"\n', { "--march", "generic" })
    local folder = t.temp()
    t.write(folder .. "/text", LINE:sub(1, 8 * 3))
    x.both(p, folder .. "/text")
    local chunked = gpt(t, x, "predict_chunked", 'unembed { "wte" }',
        'memory { logits = "chunked", logits_rows = 20 }\n')
    local whole = gpt(t, x, "predict_whole", 'unembed { "wte" }')
    t.contains(x.predict(chunked, folder .. "/text", folder .. "/o.npy", { status = 1 }).err,
        "--predict: the output is never whole in memory: use make predict, or memory { logits = \"whole\" }")
    local result = x.alone(chunked, folder .. "/text", folder .. "/a.npy")
    t.equal(result.status, 0, result.err)
    local alone = x.alone(whole, folder .. "/text", folder .. "/b.npy")
    t.equal(alone.status, 0, alone.err)
    t.equal(host.sha256(host.read(folder .. "/a.npy")), host.sha256(host.read(folder .. "/b.npy")))
end)

local NET = [[
model(function(batch)
    local x = reshape { 2, 6, 4 } (linear "planes" { 48 } (batch.input))
    x = silu(conv2d "a" { 6, 3, stride = 2, padding = 1 } (x)) + conv2d "b" { 6, 1, stride = 2 } (x)
    x = conv2d "one" { 18, 1 } (conv2d "wide" { 16, 3, padding = 1 } (x))  -- tiles by the number of workers
    x = flatten {} (avgpool2d { "global" } (batchnorm "bn" {} (conv2d "c" { 6, 3, groups = 3, padding = 1 } (x))))
    local gate = silu {} (linear "gate" { 16 } (x))
    return linear "fc" { 3 } (rmsnorm "rms" {} (gate * linear "up" { 16 } (x)))
end)]]

add("other types, merged and joint layers, planes: the same bits", function(t, x)
    local rest = x.MLP:gsub('name[^\n]*\n', ""):gsub("model[^\n]*\n", function() return NET .. "\n" end)
    for i, more in ipairs { "", 'precision "f64"\n', 'precision "f16"\nscaler {}\n' } do
        if i == 1 or t.all then
            local p = x.trained("predict_net" .. i, rest .. more)
            x.both(p, x.data() .. "tiny.csv")
        end
    end
end)

-- A device: nothing but the header, the weights as an array, and a few rows.
local DEVICE = [[
#define LOOPED_PREDICT_IMPLEMENTATION
#include "looped_predict.h"
#include "weights.h"
#include <stdio.h>

int main(void) {
    static double memory[LOOPED_PREDICT_MEMORY / sizeof(double)];
    static float output[3 * LOOPED_PREDICT_OUTPUT];
    static const float input[3 * 4] = { %s };
    const looped_predict_rows rows = {.input = input};
    if (looped_predict_check(looped_predict_weights, sizeof looped_predict_weights) != 0) return 1;
    looped_predict(looped_predict_weights, memory, &rows, 3, output);
    for (int i = 0; i < 3 * LOOPED_PREDICT_OUTPUT; i++) printf("%%.9g\n", output[i]);
    return 0;
}
]]

-- Compiled for the oldest processor of the kind, a program has no multiply-adds, as the library with cc alone.
add("the library builds with cc alone; with the program's flags outputs are the same bits", function(t, x)
    local p = x.trained("predict_plain", x.MLP, { predict = true, options = { "--march", "generic" } })
    local folder, numbers, count = t.temp(), {}, 0
    for line in host.read(x.data() .. "tiny.csv"):gmatch "[^\n]+" do
        count = count + 1
        if count <= 3 then numbers[count] = line:match "^(.*),%d+$":gsub("([%d.]+)", "%1f") end
    end
    x.programs.train(p, { "--save-weights", folder .. "/weights.h", "--checkpoint", p.checkpoint })
    t.write(folder .. "/device.c", DEVICE:format(table.concat(numbers, ", ")))
    local built = t.shell(("cd %s && cp %s/looped_predict.h . && cc -std=c11 -Wall -Wextra -Wpedantic -Werror -c "
        .. "device.c && cc -o device device.o -lm && ./device"):format(folder, t.root .. "/" .. p.folder))
    t.equal(built.status, 0, built.out .. built.err)
    t.write(folder .. "/face.cc", '#include "looped_predict.h"\nint f() { return looped_predict_check(0, 1); }\n')
    t.equal(t.shell(("cd %s && c++ -Wall -Wextra -Werror -c face.cc"):format(folder)).status, 0)
    x.predict(p, x.data() .. "tiny.csv", folder .. "/o.csv")
    local _, rows = x.read_csv(folder .. "/o.csv")
    local i = 0
    for line in built.out:gmatch "[^\n]+" do
        t.equal(tonumber(line), rows[i // 3 + 1][i % 3 + 1])
        i = i + 1
    end
    t.equal(i, 9)
    local text = host.read(p.folder .. "/looped_predict.h")
    for _, word in ipairs { "_dx", "_dw", "\n#include \"", "adamw", "malloc", "pthread" } do
        t.equal(text:find(word, 1, true), nil, word)
    end
end)

add("no checkpoint, weights of others or damaged ones, options", function(t, x)
    local p = x.trained("predict", x.MLP, { predict = true, lib = true })
    local folder, file = t.temp(), x.data() .. "tiny.csv"
    local empty = { checkpoint = t.temp() }
    local function refused(words, message)
        words.status = 1
        t.contains(x.programs.train(p, words).err, message)
    end
    refused({ "--predict", file, "--out", folder .. "/a.npy", "--checkpoint", empty.checkpoint },
        "; train first, or name parameters with --init")
    refused({ "--save-weights", folder .. "/w", "--checkpoint", empty.checkpoint }, "--save-weights: ")
    refused({ "--predict", file }, "--predict: given without --out, expected both")
    refused({ "--out", file }, "--out: given without --predict, expected both")
    refused({ "--probabilities" }, "--probabilities: given without --predict, expected both")
    refused({ "--predict", file, "--out", "a.npy", "--eval" },
        "--predict: given beside --eval, one of the two expected")
    refused({ "--predict", file, "--out", "a.npy", "--plot" }, "--plot: given beside --predict, which does not train")
    refused({ "--predict", file, "--out", folder .. "/a.txt", "--checkpoint", p.checkpoint },
        "a.txt: expected a name that ends in .npy or .csv")
    local rows, copy = host.read(file), folder .. "/rows.csv"
    t.write(copy, rows)
    refused({ "--predict", copy, "--out", folder .. "/./rows.csv", "--checkpoint", p.checkpoint },
        "rows.csv: is the file that the rows are read from: expected another")
    t.equal(host.read(copy), rows)
    refused({ "--predict", file, "--out", folder .. "/none/a.npy", "--checkpoint", p.checkpoint }, "cannot be created")
    local init = x.newest(p) .. "/model.safetensors"
    x.programs.train(p, { "--predict", file, "--out", folder .. "/i.npy", "--init", init })
    local _, weights = x.alone(p, file, folder .. "/a.npy")
    local bytes = host.read(weights)
    local function alone(text, message)
        t.write(folder .. "/w.bin", text)
        local result = t.run { p.own, file, folder .. "/b.npy", "--weights", folder .. "/w.bin" }
        t.equal(result.status, 1)
        t.contains(result.err, message)
        t.equal(host.exists(folder .. "/b.npy"), false)
    end
    alone(bytes:sub(1, -5), "w.bin: is no file of weights of this model")
    alone("x", "w.bin: is no file of weights of this model")
    alone(bytes:sub(1, 8):reverse() .. bytes:sub(9), "w.bin: is no file of weights of this model")
    alone(bytes:sub(1, 99) .. string.char(bytes:byte(100) ~ 1) .. bytes:sub(101), "w.bin: is damaged")
    t.contains(t.run { p.own, file, folder .. "/b.npy" }.err, "is not there: make weights writes it")
    t.contains(t.run { p.own, file }.err, "usage: looped_predict FILE OUT.npy|OUT.csv")
    t.contains(t.run { p.own, file, folder .. "/b.npy", "--weights", "a", "--weights", "b" }.err, "usage: looped_predict")
end)

-- Bytes of a row of the two layers side by side that have most, as the model's table has them.
local function largest_neighbours(plan)
    local most, before = 0, 0
    for _, layer in ipairs(plan.layers) do
        local bytes = 4
        for i = 2, #layer.shape do bytes = bytes * layer.shape[i] end
        most, before = math.max(most, before + bytes), bytes
    end
    return most
end

-- The test programs, with the data of a shipped spec, and the path of this spec beside them.
local function shipped_spec(t, name)
    local shipped, data = t.load "tests/lua/shipped.lua", nil
    for _, row in ipairs(shipped.list) do data = row[1] == name and row[2] or data end
    local programs = shipped.open(t, data)
    local spec = ("%s/%s/%s.lua"):format(t.root, programs.folder(), name)
    t.write(spec, shipped.text(t, name))
    return programs, spec
end

-- A residual keeps its input beside the two; a gated pair is three of the widest layers and two of the residual's width.
for _, case in ipairs { { "digits_mlp", 1 }, { "mnist_mlp", 1 }, { "char_gpt", 1 }, { "gpt2_124m", 1 },
    { "vit_tiny_cifar10", 1 }, { "resnet18_tutorial", 1.01 }, { "resnet18_cifar10", 1.51 }, { "llama_tiny", 2.05 },
    { "bert_mini_sst2", 1 }, { "bert_sst2", 1, 0.6 } } do
    local name, most, least = table.unpack(case)            -- least: of bf16, but for tables and norms
    add(name .. ": the plan is the parameters, and of the values of a row those that live together", function(t)
        local programs, spec = shipped_spec(t, name)
        local plan = t.load("tests/lua/json.lua").read(programs.gagen { "plan", spec, "--json" }.out)
        local part = plan.predict.weight_bytes / (4 * plan.totals.parameters)
        assert(part >= (least or 1) and part < 1.002, part)
        part = plan.predict.value_bytes / largest_neighbours(plan)
        assert(part <= most, part)
    end)
    add(name .. ": the header of make predict compiles", function(t)
        local programs, spec = shipped_spec(t, name)
        local folder = ("%s/%s/predict_%s"):format(t.root, programs.folder(), name)
        local result = programs.gagen { spec, "-o", folder, "--force" }
        t.equal(result.status, 0, result.err)
        result = t.run { "make", "-s", "-C", folder, "built/predict.o", "CFLAGS=-O0 -Werror" }
        t.equal(result.status, 0, result.err)
    end)
end

add("models that cannot be predicted say why", function(t, x)
    local several = x.programs.build("predict_several", (x.MLP:gsub("model[^\n]*\nloss[^\n]*", [[
model(function(batch) return { a = linear "a" { 3 } (batch.input), b = linear "b" { 3 } (batch.input) } end)
loss       { function(out, batch) return cross_entropy(out.a + out.b, batch.target) end }]])
        :gsub("\neval[^\n]*\n", "\n")))
    t.contains(x.programs.train(several, { "--predict", "x", "--out", "y.npy", status = 1 }).err,
        "--predict: the model gives several tensors, expected one")
    t.contains(x.programs.train(several, { "--save-weights", "x", status = 1 }).err,
        "--save-weights: the model gives several tensors, expected one")
    local reads = x.programs.build("predict_reads", (x.MLP:gsub("model[^\n]*", [[
model(function(batch) return linear "a" { 3 } (batch.input) + embedding "b" { 3, 3 } (batch.target) end)]])))
    t.contains(x.programs.train(reads, { "--predict", "x", "--out", "y.npy", status = 1 }).err,
        "--predict: the model reads batch.target, which rows to predict do not have")
    t.equal(host.exists(reads.folder .. "/predict.c"), false)
end)

add("on a device the outputs are those of the C target up to rounding", function(t, x)
    local programs, environment = dofile("tests/lua/devices.lua").open(t)
    local p = x.trained("predict", x.MLP, { predict = true, lib = true })
    local device = x.programs.build("predict_cuda", x.MLP .. 'target "cuda"\n')
    local folder, file = t.temp(), x.data() .. "tiny.csv"
    device.checkpoint = p.checkpoint
    x.predict(p, file, folder .. "/a.npy")
    x.predict(device, file, folder .. "/b.npy", { env = environment() })
    local _, a = x.read_npy(folder .. "/a.npy")
    local shape, b = x.read_npy(folder .. "/b.npy")
    t.equal(shape, "90, 3")
    for i, x in ipairs(a) do t.near(b[i], x, 1e-5) end
    x.programs.train(p, { "--save-weights", folder .. "/a.bin", "--checkpoint", p.checkpoint })
    x.programs.train(device, { "--save-weights", folder .. "/b.bin", "--checkpoint", p.checkpoint,
        env = environment() })
    t.equal(host.sha256(host.read(folder .. "/a.bin"):sub(65)), host.sha256(host.read(folder .. "/b.bin"):sub(65)))
end)

return tests
