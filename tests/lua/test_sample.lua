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
    local _, p = build(t, "sample", spec())
    local function shell(script) return t.run { "timeout", "300", "bash", "-c", (script:gsub("TRAIN", p.train
        .. " --sample 100000000")) } end
    local gone = shell "TRAIN | head -c 9; exit ${PIPESTATUS[0]}"
    t.equal(gone.status, 3)
    t.contains(gone.err, "sample: standard output: ")
    local stopped = shell "coproc exec TRAIN; head -c 9 <&${COPROC[0]}; kill -TERM $COPROC_PID; wait $COPROC_PID"
    t.equal(stopped.status, 0)
end)

-- At the start the head is 0: every letter is as likely as any other.
add("each token is drawn with the model's probability", function(t)
    local programs, p = build(t, "sample_even", spec('init { { "head.*", value = 0 } }\n'))
    local text = programs.train(p, { "--sample", 4000 }).out
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

add("wrong options are refused", function(t)
    local programs, p = build(t, "sample", spec())
    local function refused(message, ...)
        t.contains(programs.train(p, { "--sample", ..., status = 1 }).err, message)
    end
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
