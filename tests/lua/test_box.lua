-- The sandbox of a spec: every snippet of tests/box/snippets.lua ends in time with the expected message and line, and
-- a valid spec is recorded as written.
local PATH = "hostile.lua"
local SECONDS = 300     -- wall time, generous: the limits of the sandbox are processor time

local function evaluate(t, text)
    return host.evaluate { path = PATH, text = text, words = t.load("tests/box/words.lua") }
end

local function events_of(t, text)
    local events, d = evaluate(t, text)
    if not events then error(("%s: %s"):format(d.at, d.message), 2) end
    return events
end

local function check(t, snippet)
    local number, text, message, line = snippet[1], snippet[2], snippet[3], snippet[4]
    local began = t.clock()
    local events, d = evaluate(t, text)
    assert(t.clock() - began <= SECONDS, "took too long")
    if snippet.bits and d and d.message:find("bitwise operators are refused", 1, true) then
        return
    end
    if not message then
        if not events then error(("%s: refused: %s: %s"):format(number, d.at, d.message)) end
        if snippet.args then t.equal(events[1].args, snippet.args) end
        return
    end
    assert(not events, number .. " passed")
    t.contains(d.message, message)
    t.equal(d.at, line == "path" and PATH or PATH .. ":" .. line, d.message)
    t.equal(d.kind, nil)
end

local tests = {}

for _, snippet in ipairs(dofile("tests/box/snippets.lua")) do
    tests[#tests + 1] = { "snippet " .. snippet[1], function(t) check(t, snippet) end }
end

local function add(name, f) tests[#tests + 1] = { name, f } end

add("a list model", function(t)
    local events = events_of(t, [[
data { "csv", train = "x.csv", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch (16)
accumulate { 4, later = { [10] = 8, [2] = 6 }, tail = "drop" }
model { linear "f" { 64 }, relu {}, times(3) "h" { linear "a" { 8, bias = false }, dropout(0.1) } }
loss "cross_entropy"
]])
    t.equal(events, {
        { event = "word", name = "data", line = 1, args = { "csv", train = "x.csv", target = "last",
            scale = 0.0625, split = { fold = 1, of = 5 } } },
        { event = "word", name = "batch", line = 2, args = { 16 } },
        { event = "word", name = "accumulate", line = 3,
            args = { 4, later = { [10] = 8, [2] = 6 }, tail = "drop" } },
        { event = "layer", id = 1, kind = "linear", name = "f", line = 4, args = { 64 } },
        { event = "layer", id = 2, kind = "relu", line = 4, args = {} },
        { event = "layer", id = 3, kind = "linear", name = "a", line = 4,
            args = { 8, bias = false } },
        { event = "layer", id = 4, kind = "dropout", line = 4, args = { 0.1 } },
        { event = "layer", id = 5, kind = "times", name = "h", count = 3, line = 4,
            args = { { layer = 3 }, { layer = 4 } } },
        { event = "model", form = "list", line = 4,
            args = { { layer = 1 }, { layer = 2 }, { layer = 5 } } },
        { event = "word", name = "loss", line = 5, args = { "cross_entropy" } },
    })
end)

add("a traced model, loss and schedule", function(t)
    local events = events_of(t, [[
model(function(batch)
    local x = linear "fc" { 4 } (batch.input) * 2
    return times(2) "h" (function(y)
        return y + relu(x)
    end) (x)
end)
loss { function(out, batch)
    return out.logits - batch.target
end, "more", weight = "token" }
schedule(function(t, base) return base * where(lt(t, 10), 0.5, -t) end)
]])
    t.equal(events, {
        { event = "model_begin", line = 1, args = {} },
        { event = "layer", id = 1, kind = "linear", name = "fc", line = 2, args = { 4 } },
        { event = "field", name = "input", out = 1, line = 2 },
        { event = "apply", layer = 1, ins = { 1 }, out = 2, line = 2 },
        { event = "op", op = "mul", ins = { { tensor = 2 }, 2 }, out = 3, line = 2 },
        { event = "layer", id = 2, kind = "times", name = "h", count = 2, line = 3, args = {},
            body = true },
        { event = "enter", layer = 2, ins = { 3 }, arg = 4, line = 3 },
        { event = "op", op = "relu", ins = { { tensor = 3 } }, out = 5, line = 4 },
        { event = "op", op = "add", ins = { { tensor = 4 }, { tensor = 5 } }, out = 6, line = 4 },
        { event = "leave", layer = 2, result = 6, out = 7 },
        { event = "model_end", result = { tensor = 7 } },
        { event = "loss_begin", line = 7, out = 8, args = { "more", weight = "token" } },
        { event = "field", name = "logits", of = 8, out = 9, line = 8 },
        { event = "field", name = "target", out = 10, line = 8 },
        { event = "op", op = "sub", ins = { { tensor = 9 }, { tensor = 10 } }, out = 11, line = 8 },
        { event = "loss_end", result = { tensor = 11 } },
        { event = "schedule_begin", line = 10, t = 12, base = 13, args = {} },
        { event = "op", op = "lt", ins = { { tensor = 12 }, 10 }, out = 14, line = 10 },
        { event = "op", op = "neg", ins = { { tensor = 12 } }, out = 15, line = 10 },
        { event = "op", op = "where", ins = { { tensor = 14 }, 0.5, { tensor = 15 } }, out = 16,
            line = 10 },
        { event = "op", op = "mul", ins = { { tensor = 13 }, { tensor = 16 } }, out = 17,
            line = 10 },
        { event = "schedule_end", result = { tensor = 17 } },
    })
end)

add("metrics are traced in the order of their names, before their word", function(t)
    t.equal(events_of(t, [[
eval { every = 3, metrics = { "loss",
    b = function(out) return out.x end,
    a = { function(out, batch) return out - batch.target end, better = "higher" },
} }
]]), {
        { event = "metric_begin", name = "a", line = 1, out = 1 },
        { event = "field", name = "target", out = 2, line = 3 },
        { event = "op", op = "sub", ins = { { tensor = 1 }, { tensor = 2 } }, out = 3, line = 3 },
        { event = "metric_end", result = { tensor = 3 } },
        { event = "metric_begin", name = "b", line = 1, out = 4 },
        { event = "field", name = "x", of = 4, out = 5, line = 2 },
        { event = "metric_end", result = { tensor = 5 } },
        { event = "word", name = "eval", line = 1,
            args = { every = 3, metrics = { "loss", a = { better = "higher" }, b = {} } } },
    })
end)

add("the line of a word is where it is named", function(t)
    local events = events_of(t, [[
local function conv(name)
    return linear(name) {
        8 }
end
model {
    conv "a",
    linear "b" {
        1 },
}
]])
    t.equal(events[1].line, 2)
    t.equal(events[2].line, 7)
    t.equal(events[3].line, 5)
end)

add("lines end with \\n, \\r or both", function(t)
    for _, ending in ipairs { "\r", "\r\n", "\n\r" } do
        local events = events_of(t, ("local s = [[a%sb]]%sbatch(4)%saccumulate(2)"):gsub("%%s", ending))
        t.equal({ events[1].line, events[2].line }, { 3, 4 })
    end
end)

add("numbers stay what they are", function(t)
    local events = events_of(t,
        "init { 1, 1.0, -0.0, 0.1, 2^53, 9007199254740993, sqrt(4), math.pi, true, 'a;b:c' }")
    local args = events[1].args
    t.equal(args, { 1, 1.0, -0.0, 0.1, 2.0^53, 9007199254740993, 2.0, math.pi, true, "a;b:c" })
    t.equal(1 / args[3], -math.huge)
end)

local REFUSED = {
    { "batch()", "batch: expected a value" },
    { "batch(1, 2)", "found 2 values, expected one" },
    { "optimizer 'adamw' { lr = 1 }", "takes one value or one table" },
    { "linear { 4 }", "linear: expected a name, found a table" },
    { "model { linear 'a' }", "without its fields" },
    { "model { relu }", "is the word 'relu'" },
    { "model { batch(4) }", "is the word 'batch'" },
    { "times(0) 'h' {}", "times: expected a whole number from 1, found 0" },
    { "times('x') 'h' {}", "times: expected a whole number from 1, found a string" },
    { "model { block 'a' (function(x) return x end) }", "whose body is a function" },
    { "model { layer = 1 } ", "a table with nothing but a number named 'layer'" },
    { "model(function(batch) return nil end)",
      "must return a tensor or a table of named tensors, found nothing" },
    { "model(function(b) return b.input, b.input end)", "must return a tensor or a table of named tensors, found 2 values" },
    { "model(function(b) return times(2) 'h' (function(x) return x, x end) (b.input) end)", "must return a tensor, found 2" },
    { "model(function(batch) return relu(batch) end)", "is the batch" },
    { "model(function(batch) return batch[1] end)", "the batch has fields with names" },
    { "model(function(batch) batch(4) end)", "attempt to call the batch" },
    { "model(function(b) clip(1) return b.input end)", "clip: stands outside of functions" },
    { "model(function(b) return relu {} (b.input) < 1 end)", "where(lt(a, b), x, y)" },
    { "model(function(b) return b.input == b.target end)", "where(lt(a, b), x, y)" },
    { "model(function(b) return b.input + 1/0 end)", "add: operand 2 is not finite" },
    { "model(function(b) return b.input + 'x' end)", "operand 2 is a string" },
    { "model(function(b) return b.input + relu {} end)", "operand 2 is relu" },
    { "model(function(b) return layernorm 'l' (b.input) end)",
      "expected its fields before the tensor" },
    { "model(function(b) return relu {} (3) end)", "relu: expected a tensor, found a number" },
    { "local k\nmodel(function(b) k = b.input return k end)\nloss(function(o) return k end)",
      "this tensor belongs to a function that has ended" },
    { "local k\nmodel(function(b)\n"
        .. "return times(2) 'h' (function(x) k = x return x end)(b.input) + k end)",
      "this tensor belongs to a function that has ended" },
    { "local x = gelu(1.5)", "gelu of a number is not available" },
    { "local x = math.sqrt('4')", "math.sqrt: expected a number or a tensor, found a string" },
    { "local x = math.floor(nil)", "math.floor: expected a number, found nothing" },
    { "name '" .. ("x"):rep(5000) .. "'", "string longer than 4096 bytes" },
    { "accumulate { 4, later = { [1.5] = 1 } }", "later: key is a number" },
    { "accumulate { 4, other = { [5] = 1 } }", "other: gap in positions" },
    { "local b b = function(x) return block 'a' (b) (x) end\n"
        .. "model(function(i) return b(i.input) end)",
      "functions nested deeper than 32" },
}
add("refusals", function(t)
    for _, pair in ipairs(REFUSED) do
        local events, d = evaluate(t, pair[1])
        assert(not events, pair[1])
        t.contains(d.message, pair[2])
        t.equal(d.kind, nil, pair[1] .. d.message)
        t.match(d.at, "^hostile.lua:%d+$")
    end
end)

add("did you mean", function(t)
    local diag = require "base.diag"
    local _, d = evaluate(t, "\noptimiser { 'adamw' }")
    t.equal(d.found, "optimiser")
    t.match(diag.render(diag.new(d.at, d.message, d)), "did you mean 'optimizer'%?")
end)

add("files", function(t)
    local words = t.load("tests/box/words.lua")
    local folder = t.temp()
    local function refused(path, message)
        local events, d = host.evaluate { path = path, words = words }
        t.equal(events, nil)
        t.contains(d.message, message)
        t.equal(d.at, path)
    end
    refused(folder, "is a folder")
    refused(folder .. "/none.lua", "No such file")
    refused("/dev/zero", "is a device")
    t.equal(t.run { "mkfifo", folder .. "/fifo" }.status, 0)
    refused(folder .. "/fifo", "is a FIFO")
    t.write(folder .. "/big.lua", ("-"):rep((256 << 10) + 1))
    refused(folder .. "/big.lua", "larger than 256 KB")
    t.write(folder .. "/good.lua", "batch(4)")
    t.equal(#assert(host.evaluate { path = folder .. "/good.lua", words = words }), 1)
end)

return tests
