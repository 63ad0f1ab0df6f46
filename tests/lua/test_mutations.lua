-- Specs with bytes changed, lost, doubled and swapped: whatever the text, gagen takes it (exit 0) or
-- refuses it (exit 1), never more. Each text is a function of its seed; a failure prints it.
-- GAGEN_MUTATIONS=first:count chooses others.
local SECONDS, BYTES, CHUNK = 20, 2 ^ 31, 100

-- Small specs that use words missing in the shipped ones.
local SMALL = {
    [[
data { "csv", train = "tiny.csv", split = { fold = 1, of = 3, seed = 2 }, shuffle = false }
batch { 4, global = 8 }
model(function(batch)
    local x = tanh(linear "in" { 6 } (batch.input))
    local shared = linear "shared" { 6, bias = false }
    x = times(3) "h" (function(h) return residual { shared, gelu { "tanh" } } (h) * x + 0.5 end) (x)
    return linear "out" { 3 } (x ^ 2 - x / 3)
end)
init { { "h.*", normal = 0.02 }, { "*.bias", value = 0 }, { "*", uniform = 0.1 } }
loss(function(out, batch) return mean(out * out) end)
optimizer { "sgd", lr = 0.1, momentum = 0.9, nesterov = true, groups = { { "*.bias", lr_scale = 2 } } }
schedule { "cosine", warmup = 0.1, min = 1e-4 }
clip (1.0)
precision "f64"
memory { recompute = { "*" } }
train { updates = 20, on_nonfinite = "skip" }
checkpoint { every = 5, keep = 2 }
target { "c", march = "generic", threads = 2 }
]], [[
name "other"
local width, layers = 8, {}
for i = 1, 3 do layers[i] = block("b" .. i) { linear "fc" { width }, layernorm "ln" {}, relu {} } end
data { "csv", train = "tiny.csv", eval = "tiny.csv", target = 5, scale = 1/4 }
batch (5)
accumulate { 3, later = { [4] = 2 }, tail = "carry", unroll = 1 }
model { layers, times(2) "t" { residual { rmsnorm "n" {}, linear "fc" { width } } }, linear "out" { 3 } }
loss { "cross_entropy", label_smoothing = 0.1, class_weights = { 1, 2, 0.5 } }
optimizer { "adamw", lr = 1e-3, betas = { 0.9, 0.99 }, groups = { { rank = 1, weight_decay = 0 } } }
parallel { "ddp", ranks = 2, bucket = "1KiB" }
train { epochs = 4.5, seed = 7 }
eval { every = 2, batches = 3, metrics = { "loss", "accuracy" } }
log { every = 3 }
target { "cuda", arch = 80 }
]], [[
data { "text", train = "tiny.csv", context = 6, split = { eval = 10 } }
batch (4)
accumulate { 2, tail = "flush" }
model(function(batch)
    local x = embedding "wte" { 64, 8 } (batch.input)
    x = positions "wpe" { 6 } (x)
    x = times(2) "h" (function(h)
        local scores = softmax(reshape { 2, 3, 8 } (linear "q" { 8, store = "in_out" } (layernorm "ln" {} (h))))
        return h + dropout(0.1)(reshape { 6, 8 } (transpose { 1, 3, 2, 4 } (reshape { 3, 2, 8 } (flatten {} (scores)))))
    end) (x)
    return unembed { "wte" } (rmsnorm "ln_f" {} (x))
end)
loss { "cross_entropy", weight = "sample", ignore = -1 }
optimizer { "adamw", lr = 1e-3 }
train { epochs = 2 }
]], [[
data { "csv", train = "tiny.csv", target = 5, last = "pad" }
batch (6)
model(function(batch)
    local x = reshape { 2, 2 } (linear "fc" { 4 } (batch.input))
    local y = concat { axis = 2 } (slice { axis = 2, from = 1, to = 1 } (x), x)
    return pick { axis = 2, index = 3 } (mean { axis = 3 } (y) + max { axis = 3 } (y) - sum { axis = 3 } (y))
end)
loss "mse"
optimizer { "sgd", lr = 0.1 }
train { epochs = 2 }
]] }

local function random_of(seed)
    local state = seed * 2654435761 % 4294967296
    return function(n)
        state = (state * 1103515245 + 12345) % 2147483648
        state = (state * 1103515245 + 12345) % 2147483648
        return state // 65536 % n + 1
    end
end

local PIECES = { "0", "-1", "1e999", "2^31", "2^53", "0/0", "nil", "{}", "{ {} }", "''", '"\\0"', "true",
    "function() end", "x", "-", "\n", "\0", "\255", "(", ")", "{", "}", ",", "=", "*", "%d", "math.huge",
    "batch", "linear", "relu {}", "times(0)", "65537", "1e-310", "[[", "--", "1e38" }

local NUMBERS = { "0", "1", "2", "3", "5", "7", "16", "60", "90", "1000", "65536", "2147483647", "0.5", "0.9",
    "1e-9", "1e-300", "1e300", "-1", "2^40" }

local CHANGES = {
    function(text, at) return text:sub(1, at - 1) .. text:sub(at + 1) end,
    function(text, at, random) return text:sub(1, at - 1) .. string.char(random(256) - 1) .. text:sub(at + 1) end,
    function(text, at, random) return text:sub(1, at) .. string.char(random(256) - 1) .. text:sub(at + 1) end,
    function(text, at, random) return text:sub(1, at) .. PIECES[random(#PIECES)] .. text:sub(at + 1) end,
    function(text, at, random)
        local last = math.min(#text, at + random(30))
        return text:sub(1, last) .. text:sub(at, last) .. text:sub(last + 1)
    end,
    function(text, at, random) return text:sub(1, at) .. text:sub(at + random(30)) end,
    function(text, at, random)           -- a number or name becomes a piece
        local first, last = text:find("[%w_.]+", at)
        if not first then return text end
        return text:sub(1, first - 1) .. PIECES[random(#PIECES)] .. text:sub(last + 1)
    end,
    function(text, at, random)           -- a number becomes another
        local first, last = text:find("[%d.]+", at)
        if not first then return text end
        return text:sub(1, first - 1) .. NUMBERS[random(#NUMBERS)] .. text:sub(last + 1)
    end,
    function(text, at, random)           -- two words are swapped
        local a1, a2 = text:find("[%w_.]+", at)
        local b1, b2 = text:find("[%w_.]+", random(#text))
        if not a1 or not b1 then return text end
        if b1 < a1 then a1, a2, b1, b2 = b1, b2, a1, a2 end
        if b1 <= a2 then return text end
        return text:sub(1, a1 - 1) .. text:sub(b1, b2) .. text:sub(a2 + 1, b1 - 1) .. text:sub(a1, a2)
            .. text:sub(b2 + 1)
    end,
}

-- The small specs, three times as likely, and the shipped ones with data.
local function originals(t)
    local list = {}
    for _ = 1, 3 do table.move(SMALL, 1, #SMALL, #list + 1, list) end
    local places = { t.root .. "/specs/data/", (t.environment "GAGEN_DATA" or "") .. "/" }
    for _, name in ipairs(host.list("specs")) do
        local text = name:match("%.lua$") and host.read("specs/" .. name)
        local file = text and text:match('train = [{ ]*"([^"*]+)"')
        for _, place in ipairs(file and places or {}) do
            if host.exists(place .. file) == "file" then
                list[#list + 1] = text
                break
            end
        end
    end
    return list
end

local function mutant(list, seed)
    local random = random_of(seed)
    local text = list[random(#list)]
    for _ = 1, math.max(1, random(5) - 2) do
        if #text > 0 then text = CHANGES[random(#CHANGES)](text, random(#text), random) end
    end
    return text
end

-- The work of `gagen check`, in this process.
local function check(path)
    return function()
        local compile, program = require "command.compile", require "emit.program.program"
        program.render(compile(path, {}))
        return 0
    end
end

local first, count = (os.getenv "GAGEN_MUTATIONS" or ""):match("^(%d+):(%d+)$")
first, count = tonumber(first or 1), tonumber(count or (os.getenv "GAGEN_TEST_ALL" and 10000 or 200))

local tests = {}
for from = first, first + count - 1, CHUNK do
    local to = math.min(from + CHUNK, first + count) - 1
    tests[#tests + 1] = { ("mutants %d to %d"):format(from, to), function(t)
        local path = t.load("tests/lua/programs.lua")(t).folder() .. "/mutant.lua"
        local list, taken = originals(t), 0
        for seed = from, to do
            local text = mutant(list, seed)
            t.write(path, text)
            local status, err = t.isolated(check(path), SECONDS, BYTES)
            taken = taken + (status == 0 and 1 or 0)
            if status > 1 then error(("seed %d: status %d\n%s\n%s"):format(seed, status, err, text), 0) end
            if status == 1 and #err == 0 then error(("seed %d: refused without a word\n%s"):format(seed, text), 0) end
        end
        -- both outcomes must occur
        assert(to - from < 50 or taken > 0 and taken < to - from, taken .. " taken")
    end }
end

tests[#tests + 1] = { "the originals are valid specs, and the harness detects a wrong one", function(t)
    local path = t.load("tests/lua/programs.lua")(t).folder() .. "/mutant.lua"
    for _, text in ipairs(originals(t)) do
        t.write(path, text)
        local status, err = t.isolated(check(path), SECONDS, BYTES)
        t.equal(status, 0, err .. text)
    end
    t.equal((t.isolated(function() error "a defect" end, 5, BYTES)), 2)
    t.equal((t.isolated(function() require("base.diag").fail("a", "b") end, 5, BYTES)), 1)
    local stopped = t.isolated(function() while true do end end, 0.1, BYTES)
    assert(stopped == 128 + 24 or stopped == 128 + 14, stopped)      -- SIGXCPU, SIGALRM
    local text = ("x"):rep(2 ^ 20)
    t.equal((t.isolated(function() local all = {} while true do all[#all + 1] = text .. #all end end, 5,
        2 ^ 29)), 2)                                                                  -- no memory: a defect
end }

return tests
