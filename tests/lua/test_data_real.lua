-- The public data sets, where GAGEN_DATA has them: read whole, trained on, and for the sequences the
-- first batch against the file. tools/data fetches most of them.
local tests = {}

-- f(t, formats, path of a file below GAGEN_DATA -> text); specs find the files below real/.
local function add(name, files, f)
    tests[#tests + 1] = { name, function(t)
        local root = t.environment "GAGEN_DATA"
        for _, file in ipairs(files) do
            if not root or host.exists(root .. "/" .. file) ~= "file" then
                t.not_run(("GAGEN_DATA has no %s"):format(file))
            end
        end
        local formats = t.load("tests/lua/formats.lua")(t)
        assert(host.link(host.absolute(root), formats.programs.folder() .. "/data/real"))
        f(t, formats, function(file) return assert(host.read(root .. "/" .. file, 2 ^ 28)) end)
    end }
end

local function spec(data, rest)
    return ("data       { %s }\n%s\nloss       \"cross_entropy\"\n"):format(data, rest)
end

-- The last evaluation, and the loss of the last update.
local function results(events)
    local eval, loss
    for _, event in ipairs(events) do
        if event.event == "eval" then eval = event end
        if event.event == "update" then loss = event.loss end
    end
    return eval, loss
end

add("mnist: a small network after 150 updates", { "mnist/train-images-idx3-ubyte.gz",
    "mnist/t10k-labels-idx1-ubyte.gz" }, function(t, formats)
    local p = formats.programs.build("real_mnist", spec('"idx", train = { "real/mnist/train-images*", '
        .. '"real/mnist/train-labels*" }, eval = { "real/mnist/t10k-images*", "real/mnist/t10k-labels*" }, '
        .. "scale = 1/255, mean = { 0.1307 }, std = { 0.3081 }", [[
batch      (32)
accumulate (2)
model      { flatten {}, linear "fc1" { 32 }, relu {}, linear "fc2" { 10 } }
optimizer  { "adamw", lr = 3e-3 }
train      { updates = 150 }
eval       { every = 150, metrics = { "loss", "accuracy" } }]]))
    local eval = results(formats.programs.events(p, {}))
    t.equal(eval.rows, 10000)
    assert(eval.accuracy > 0.88, eval.accuracy)
end)

add("cifar10: crops, flips, the tutorial's figures of its pixels", { "cifar-10-batches-bin/data_batch_1.bin",
    "cifar-10-batches-bin/test_batch.bin" }, function(t, formats)
    local p = formats.programs.build("real_cifar", spec('"cifar10", train = "real/cifar-10-batches-bin/data_batch_*", '
        .. 'eval = "real/cifar-10-batches-bin/test_batch.bin", crop = { 32, padding = 4 }, flip = true, '
        .. "mean = { .4914, .4822, .4465 }, std = { .2023, .1994, .2010 }", [[
batch      (32)
accumulate (2)
model      { flatten {}, linear "fc1" { 32 }, relu {}, linear "fc2" { 10 } }
optimizer  { "adamw", lr = 1e-3 }
train      { updates = 60 }
eval       { every = 60, metrics = { "loss", "accuracy" } }]]))
    local eval = results(formats.programs.events(p, {}))
    assert(eval.accuracy > 0.2 and eval.loss < 2.2, eval.accuracy .. " " .. eval.loss)
end)

local BIGRAM = [[
batch      (16)
accumulate (2)
model      { embedding "table" { %d, 16 }, linear "fc" { %d } }
optimizer  { "adamw", lr = 2e-2 }
train      { updates = %d }
eval       { every = %d, batches = 2 }]]

add("tinyshakespeare as text: 65 bytes, pairs are learned", { "tinyshakespeare/input.txt" }, function(t, formats, read)
    local text = read "tinyshakespeare/input.txt"
    local p = formats.build("real_text", spec('"text", train = "real/tinyshakespeare/input.txt", context = 64, '
        .. "split = { eval = 100 }, shuffle = false", BIGRAM:format(65, 65, 60, 60)))
    local seen, events = formats.run(p)
    local eval, loss = results(events)
    assert(loss < 3 and eval.loss < 3, ("loss %g, evaluation %g; ln 65 is 4.17"):format(loss, eval.loss))
    local known, count = {}, 0
    for byte = 0, 255 do
        if text:find(string.char(byte), 1, true) then known[byte], count = count, count + 1 end
    end
    t.equal(count, 65)
    formats.check(seen.train[1], 1, "target", 0, function(row, i) return known[text:byte(row * 64 + i + 2)] end)
    local first = (#text - 1) // 64 - 100
    formats.check(seen.eval[0], 0, "input", 0, function(row, i) return known[text:byte((first + row) * 64 + i + 1)] end)
end)

local function tokens_case(t, formats, read, name, train, eval, header)
    local p = formats.build(name, (spec(('"tokens", train = "real/gpt2tokens/%s", eval = "real/gpt2tokens/%s", '
        .. "context = 32, shuffle = false"):format(train, eval), BIGRAM:format(50257, 50257, 2, 2))
        :gsub("batch      %(16%)", "batch (2)")))
    local seen, events = formats.run(p)
    local _, loss = results(events)
    assert(loss < 16, loss)
    for split, file in next, { train = train, eval = eval } do
        local data = read("gpt2tokens/" .. file)
        local function token(place) return (string.unpack("<I2", data, header + 2 * place + 1)) end
        for k = 0, 1 do
            formats.check(seen[split][k], k, "input", 0, function(row, i) return token(row * 32 + i) end)
            formats.check(seen[split][k], k, "target", 0, function(row, i) return token(row * 32 + i + 1) end)
        end
    end
end

add("tinyshakespeare as GPT-2 tokens in llm.c's files", { "gpt2tokens/tiny_shakespeare_train.bin",
    "gpt2tokens/tiny_shakespeare_val.bin" }, function(t, formats, read)
    tokens_case(t, formats, read, "real_tokens", "tiny_shakespeare_train.bin", "tiny_shakespeare_val.bin", 1024)
end)

add("tinyshakespeare as raw GPT-2 tokens", { "gpt2tokens/nanogpt_shakespeare_train.bin",
    "gpt2tokens/nanogpt_shakespeare_val.bin" }, function(t, formats, read)
    tokens_case(t, formats, read, "real_raw", "nanogpt_shakespeare_train.bin", "nanogpt_shakespeare_val.bin", 0)
end)

return tests
