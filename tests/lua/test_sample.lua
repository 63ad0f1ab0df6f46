-- --sample: a trained model generates text. A memorized text is generated again, on both targets; draws depend on the
-- seed. Tokens per second are in the log.

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- A repeated sentence: the last letters determine the next one.
local LINE = "the quick brown fox jumps over the lazy dog. "

local function spec(more)
    return [[
data       { "text", train = "line.txt", context = 8, split = { eval = 4 } }
batch      (8)
model      { embedding "wte" { 28, 24 }, positions "wpe" { 8 },
             residual { layernorm "ln" {}, linear "qkv" { 72 }, attend { heads = 2, causal = true },
                        linear "proj" { 24 } },
             linear "head" { 28 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 250, seed = 3 }
]] .. (more or "")
end

local function build(t, name, text)
    local programs = t.load("tests/lua/programs.lua")(t)
    t.write(programs.folder() .. "/data/line.txt", LINE:rep(40))
    return programs, programs.build(name, text)
end

local function written(programs, p, checkpoint, ...)
    return programs.train(p, { "--resume", "latest", "--checkpoint", checkpoint, "--sample", ... }).out
end

add("a memorized text is generated again", function(t)
    local programs, p = build(t, "sample", spec())
    local checkpoint = programs.train(p, {}).checkpoint
    local text = written(programs, p, checkpoint, 60, "--temperature", 0)
    t.equal(#text, 62)
    t.contains(LINE:rep(4), text:sub(10, 61))
    t.equal(text:sub(1, 1), LINE:sub(1, 1))
    t.equal(written(programs, p, checkpoint, 60, "--temperature", 0, "--threads", 2), text)
end)

-- Each letter is determined by the one before and the first four of eight.
add("a model whose queries see other positions generates text as well", function(t)
    local programs, p = build(t, "sample_cross", (spec():gsub("model.-\nloss", [[
model(function(batch)
    local x = positions "wpe" { 8 } (embedding "wte" { 28, 24 } (batch.input))
    local first = slice { axis = 2, to = 4 } (x)
    x = x + attend { heads = 2, causal = true } (linear "q" { 24 } (x), linear "k" { 24 } (first),
        linear "v" { 24 } (first))
    return linear "head" { 28 } (x + linear "out" { 24 } (relu {} (linear "in" { 96 } (x))))
end)
loss]])))
    local text = written(programs, p, programs.train(p, {}).checkpoint, 60, "--temperature", 0)
    t.contains(LINE:rep(4), text:sub(10, 61))
end)

add("draws follow from the seed, the temperature changes them", function(t)
    local programs, p = build(t, "sample", spec())
    local start = programs.train(p, { "--cycles", 20 }).checkpoint
    local one = written(programs, p, start, 200, "--temperature", 1)
    t.equal(written(programs, p, start, 200), one)
    t.equal(one ~= written(programs, p, start, 200, "--temperature", 3), true)
    for letter in one:gsub("\n$", ""):gmatch(".") do t.contains(LINE, letter) end
end)

add("a device generates the same text", function(t)
    local programs, p = build(t, "sample", spec())
    local checkpoint = programs.train(p, { "--cycles", 150 }).checkpoint
    local device = programs.build("sample_cuda", spec('target "cuda"\n'))
    local text = programs.train(device, { "--resume", "latest", "--checkpoint", checkpoint, "--sample", 24,
        "--temperature", 0, env = select(2, dofile("tests/lua/devices.lua").open(t))() }).out
    t.equal(text, written(programs, p, checkpoint, 24, "--temperature", 0))
end)

add("a failed write ends sampling, and so does a signal", function(t)
    local programs, p = build(t, "sample", spec())
    local checkpoint = programs.train(p, { "--cycles", 1 }).checkpoint
    local function shell(script) return t.run { "timeout", "300", "bash", "-c", (script:gsub("TRAIN", p.train
        .. " --checkpoint " .. checkpoint .. " --sample 100000000")) } end
    local gone = shell "TRAIN | head -c 9; exit ${PIPESTATUS[0]}"
    t.equal(gone.status, 3)
    t.contains(gone.err, "sample: standard output: ")
    local stopped = shell "coproc exec TRAIN; head -c 9 <&${COPROC[0]}; kill -TERM $COPROC_PID; wait $COPROC_PID"
    t.equal(stopped.status, 0)
end)

-- At the start the head is 0: every letter is as likely as any other.
add("each token is drawn with the model's probability", function(t)
    local programs, p = build(t, "sample_even", spec('init { { "head.*", value = 0 } }\n'))
    local start = t.temp() .. "/start.safetensors"
    programs.train(p, { "--save-init", start, "--cycles", 1 })
    local text = programs.train(p, { "--init", start, "--sample", 4000 }).out
    local counts, chi = {}, 0
    for letter in text:sub(2, 4001):gmatch(".") do counts[letter] = (counts[letter] or 0) + 1 end
    local kinds = 0
    for _, n in next, counts do
        kinds = kinds + 1
        chi = chi + (n - 4000 / 28) ^ 2 / (4000 / 28)
    end
    t.equal(kinds, 28)
    assert(chi < 27 + 4 * math.sqrt(2 * 27), ("chi-square %g with 27 degrees of freedom"):format(chi))
end)

add("the logged loss is the mean of the update's targets", function(t)
    local programs, p = build(t, "sample_even", spec('init { { "head.*", value = 0 } }\n'))
    for _, event in ipairs(programs.events(p, { "--cycles", 1 })) do
        if event.event == "update" then t.near(event.loss, math.log(28), 1e-6) end
    end
end)

add("tokens per second are those of all rows", function(t)
    local programs, p = build(t, "sample", spec())
    for _, event in ipairs(programs.events(p, { "--cycles", 3 })) do
        if event.event == "update" then
            t.equal(event.rows, 8)
            t.near(event.tokens_per_s, 8 * event.rows_per_s, 1e-6 * event.tokens_per_s)
        end
    end
end)

-- Biases whose exponentials are shares of 28 letters: the letter number i of the vocabulary has 28 - i parts of 406.
local function uneven(t)
    local LETTERS = " .abcdefghijklmnopqrstuvwxyz"
    local biases, shares = {}, {}
    for i = 1, 28 do shares[LETTERS:sub(i, i)], biases[i] = (29 - i) / 406, math.log(29 - i) end
    local programs = t.load("tests/lua/programs.lua")(t)
    t.write(programs.folder() .. "/data/line.txt", LINE:rep(40))
    local p = programs.build("sample_uneven", spec('init { { "head.weight", value = 0 } }\n'))
    local start = t.temp() .. "/start.safetensors"
    programs.train(p, { "--save-init", start, "--cycles", 1 })
    local text = host.read(start)
    local from = 8 + string.unpack("<I8", text)
    local first = tonumber(text:match('"head.bias":{.-"data_offsets":%[(%d+),'))
    local packed = string.pack("<" .. ("f"):rep(28), table.unpack(biases))
    t.write(start, text:sub(1, from + first) .. packed .. text:sub(from + first + #packed + 1))
    return programs, p, start, shares, LETTERS
end

-- Chi-square of letters against shares that are scaled to a sum of 1; letters without a share must not occur.
local function follows(text, shares)
    local counts, sum, kinds, chi = {}, 0, 0, 0
    for letter in text:gmatch "." do counts[letter] = (counts[letter] or 0) + 1 end
    for _, share in next, shares do sum = sum + share end
    for letter in next, counts do assert(shares[letter], "drawn: '" .. letter .. "'") end
    for letter, share in next, shares do
        local expected = #text * share / sum
        kinds, chi = kinds + 1, chi + ((counts[letter] or 0) - expected) ^ 2 / expected
    end
    local most = kinds - 1 + 4 * math.sqrt(2 * (kinds - 1))
    assert(chi < most, ("chi-square %g of %d letters, at most %g expected"):format(chi, kinds, most))
end

-- The first n of the letters, with their shares.
local function first_of(letters, shares, n)
    local some = {}
    for letter in letters:sub(1, n):gmatch "." do some[letter] = shares[letter] end
    return some
end

add("top-k and top-p leave the likeliest tokens, in their proportions", function(t)
    local programs, p, start, shares, letters = uneven(t)
    local function drawn(...)
        return programs.train(p, { "--init", start, "--prompt", "a", "--sample", 1000, ... }).out:sub(2, 1001)
    end
    follows(drawn(), shares)
    follows(drawn("--top-k", 5), first_of(letters, shares, 5))
    follows(drawn("--top-k", 28, "--top-p", 1), shares)
    t.equal(drawn("--top-k", 1), (" "):rep(1000))
    t.equal(drawn("--top-p", 1e-9), (" "):rep(1000))
    -- 28 + 27 + 26 parts are 0.1995 of 406, and 55 of the first 105 are 0.524.
    follows(drawn("--top-p", 0.199), first_of(letters, shares, 3))
    follows(drawn("--top-p", 0.2), first_of(letters, shares, 4))
    follows(drawn("--top-k", 4, "--top-p", 0.51), first_of(letters, shares, 2))
    follows(drawn("--top-k", 4, "--top-p", 0.53), first_of(letters, shares, 3))
end)

add("a prompt is what the tokens follow, as text or as a file; --stop ends behind its text", function(t)
    local programs, p = build(t, "sample", spec())
    local checkpoint = programs.train(p, {}).checkpoint
    local function text(...) return written(programs, p, checkpoint, 60, "--temperature", 0, ...) end
    local prompt, file = "brown fox jumps ov", t.temp() .. "/prompt.txt"
    t.write(file, prompt)
    local out = text("--prompt", prompt)
    t.equal(#out, #prompt + 61)
    t.contains(LINE:rep(4), out:sub(1, -2))
    t.equal(text("--prompt", file), out)
    t.equal(text("--prompt", prompt:sub(-8)), out:sub(#prompt - 7))
    local refused = programs.train(p, { "--sample", 5, "--checkpoint", checkpoint, "--prompt", "fox X", status = 1 })
    t.equal(refused.out, "")
    t.contains(refused.err, "--prompt: byte 5 is 0x58 ('X')")
    local piped = t.run { "bash", "-c", ('"$0" --sample 60 --temperature 0 --quiet --checkpoint %s --prompt <(cat %s)')
        :format(checkpoint, file), p.train, env = { "GAGEN_DATA=" .. p.folder .. "/data" } }
    t.equal(piped.out, out)
    t.equal(text("--prompt", prompt, "--stop", "dog."), prompt .. "er the lazy dog.\n")
    t.equal(text("--prompt", "the lazy dog", "--stop", "dog", "--seed", 99):match "^the lazy dog(.*)\n$",
        ". the quick brown fox jumps over the lazy dog")
end)

-- The tokens are 0 to 6, again and again; the last layer has numbers for 12, the table of embeddings rows for 8.
add("tokens that are numbers: prompts, --stop, and only such as can be read again", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local list = {}
    for i = 1, 600 do list[i] = (i - 1) % 7 end
    t.write(programs.folder() .. "/data/seven.bin", string.pack(("<" .. ("I2"):rep(600)), table.unpack(list)))
    local text = spec():gsub('"text", train = "line.txt"', '"tokens", train = "seven.bin"'):gsub("28, 24", "8, 24")
        :gsub("28 }", "12 }")
    local p = programs.build("sample_tokens", text)
    local checkpoint = programs.train(p, {}).checkpoint
    t.equal(written(programs, p, checkpoint, 20, "--temperature", 0, "--prompt", "2 3\n4"),
        "2 3 4 5 6 0 1 2 3 4 5 6 0 1 2 3 4 5 6 0 1 2 3 \n")
    t.equal(written(programs, p, checkpoint, 20, "--temperature", 0, "--prompt", "2", "--stop", "6 0"), "2 3 4 5 6 0 \n")
    local drawn = written(programs, p, checkpoint, 500, "--temperature", 1e5)
    for id in drawn:gmatch "%d+" do assert(tonumber(id) < 8, "a token that cannot be read: " .. id) end
    t.contains(programs.train(p, { "--sample", 5, "--checkpoint", checkpoint, "--prompt", "2 8", status = 1 }).err,
        "--prompt: byte 3: expected numbers of tokens, each from 0 to 7")
    t.contains(programs.train(p, { "--sample", 5, "--checkpoint", checkpoint, "--prompt", "the", status = 1 }).err,
        "--prompt: byte 0: expected numbers of tokens, each from 0 to 7")
end)

-- With this rate the loss rises and falls, so that the last evaluation is not the best.
add("the best checkpoint is sampled from, or else the newest, or none", function(t)
    local programs, p = build(t, "sample_best", (spec('eval { every = 4 }\n'
        .. 'checkpoint { every = 4, keep = 2, best = "loss" }\n'):gsub("lr = 1e%-2", "lr = 1"):gsub("250", "40")))
    local folder = programs.train(p, {}).checkpoint
    local manifest = folder .. "/cycle-%09d/manifest.json"
    local best = tonumber(host.read(manifest:format(40)):match '"best":{[^}]-"cycle":(%d+)')
    assert(best < 40, "the best is the newest: this says nothing")
    local function text(...) return programs.train(p, { "--sample", 40, "--seed", 3, ... }).out end
    local function of(cycle) return text("--resume", ("%s/cycle-%09d"):format(folder, cycle)) end
    local of_best, of_newest = of(best), of(40)
    t.equal(of_best ~= of_newest, true)
    t.equal(text("--checkpoint", folder), of_best)
    t.equal(text("--checkpoint", folder, "--resume", "latest"), of_newest)
    local path = ("%s/cycle-%09d/model.safetensors"):format(folder, best)
    local whole = host.read(path)
    t.write(path, whole:sub(1, -2) .. string.char(whole:byte(-1) ~ 1))
    local result = programs.train(p, { "--sample", 40, "--seed", 3, "--checkpoint", folder })
    t.contains(result.err, "rejected, that of the best evaluation: model.safetensors: bytes")
    t.equal(result.out, of_newest)
    t.run { "rm", "-r", path:match "^(.*)/[^/]*$" }
    t.equal(text("--checkpoint", folder), of_newest)
    t.run { p.train, "--run", "only", "--quiet" }
    local of_run = t.run { p.train, "--sample", "40", "--seed", "3" }
    t.equal(of_run.out, of_best)
    t.contains(of_run.err, "/runs/only/checkpoints/cycle-")
end)

add("wrong options are refused", function(t)
    local programs, p = build(t, "sample", spec())
    local function refused(message, ...)
        t.contains(programs.train(p, { "--sample", ..., status = 1 }).err, message)
    end
    t.contains(programs.train(p, { "--sample", 5, status = 1 }).err, "train first, or name parameters with --init")
    local start = t.temp() .. "/start.safetensors"
    programs.train(p, { "--save-init", start, "--cycles", 1 })
    local function bad(message, ...)
        t.contains(programs.train(p, { "--init", start, "--sample", 5, status = 1, ... }).err, message)
    end
    bad("--prompt: byte 4 is 0x5e ('^'), and the training text has no such byte", "--prompt", "the^")
    bad("--stop: byte 1 is 0x0a, and the training text has no such byte", "--stop", "\n")
    bad("--stop: more than 256 tokens", "--stop", ("a"):rep(257))
    bad("--top-p: '0' found, a number above 0 and at most 1 expected", "--top-p", 0)
    bad("--top-p: '1.5' found", "--top-p", 1.5)
    bad("--top-k: '0' found, a whole number from 1", "--top-k", 0)
    t.contains(programs.train(p, { "--top-k", 5, status = 1 }).err, "--top-k: given without --sample, expected both")
    refused("--sample: '0' found, a whole number from 1", 0)
    t.contains(programs.train(p, { "--sample", 5, "--temperature", "warm", status = 1 }).err,
        "--temperature: 'warm' found, a number from 0 to 1e6 expected")
    t.contains(programs.train(p, { "--sample", 5, "--temperature", "-1", status = 1 }).err, "'-1' found")
    local plain = programs.build("sample_none", [[
data      { "csv", train = "tiny.csv", target = "last" }
batch     (3)
model     { linear "fc1" { 3 } }
loss      "cross_entropy"
optimizer { "sgd", lr = 0.1 }
train     { updates = 3 }
]])
    t.contains(programs.train(plain, { "--sample", 5, status = 1 }).err, "this program's model gives no tokens")
end)

return tests
