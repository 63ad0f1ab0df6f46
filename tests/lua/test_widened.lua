-- Values of 16 bits that are widened once for all tiles of a product, on processors that multiply no 16 bits: the bits
-- are those of products whose tiles widen their rows (--without widened).
local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- Rows, columns and terms that are no whole strips, panels and vectors; weights that lie by rows and by columns, of
-- which two read one value; layers in a loop, computed again; a product that is too small; attention between them.
local SPEC = [[
data       { "text", train = "widened.txt", context = 13 }
batch      (%d)
accumulate (2)
model(function(batch)
    local x = positions "wpe" { 13 } (embedding "wte" { 32, 206 } (batch.input))
    x = times(2) "h" { residual { layernorm "norm" {}, linear "up" { 410 }, gelu {}, linear "down" { 206 } } } (x)
    local y = layernorm "middle" {} (x)
    local gate, way = linear "gate" { 330 } (y), linear "way" { 330, store = "in_out" } (y)
    x = x + linear "out" { 206 } (sigmoid(gate) * way)
    local q, k, v = linear "q" { 206 } (x), linear "k" { 206 } (x), linear "v" { 206 } (x)
    x = x + linear "small" { 206 } (linear "few" { 8 } (attend { heads = 2, causal = true } (q, k, v)))
    return unembed { "wte" } (layernorm "last" {} (x))
end)
init       { { "*norm.weight", value = 1 }, { "middle.weight", value = 1 }, { "last.weight", value = 1 },
             { "*", normal = 0.1 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
memory     { recompute = { "h_*" } }
train      { updates = 3, seed = 5 }
]]

local function text_of_letters()
    local bytes = {}
    for i = 1, 1200 do bytes[i] = string.char(97 + (i * i + i // 5) % 26) end
    for byte = 0, 5 do bytes[#bytes + 1] = string.char(65 + byte) end
    return table.concat(bytes)
end

-- rows: of text in a micro-batch, so many that products have several tiles beside each other.
local function check(t, march, precision, rows)
    local programs, level = t.load("tests/lua/programs.lua")(t), t.load("tests/lua/marches.lua")(t).level_of(march)
    t.write(programs.folder() .. "/data/widened.txt", text_of_letters())
    local function build(name, ...)
        local p = programs.build(("widened_%s_%s"):format(name, march:gsub("%-", "_")),
            (SPEC .. 'precision  "%s"\n'):format(rows, precision), { options = { "--march", march, ... }, level = level })
        return p, host.read(p.folder .. "/step.c")
    end
    local once, step = build("once")
    local each, plain = build("each", "--without", "widened")
    local function number(text, pattern) return select(2, text:gsub(pattern, "")) end
    t.equal(number(plain, "_wide"), 0)
    t.equal(number(step, "middle_y_wide, m%->a%.middle_y%)"), 1)        -- a copy for both products that read it
    t.equal(number(step, "middle_y_wide,%s+m%->[wv]"), 2)
    t.equal(number(step, "few_y_wide"), 0)
    local expected = programs.dump(each, { "--cycles", 3, "--threads", 1 })
    for _, threads in ipairs { 1, 3 } do
        programs.identical(programs.dump(once, { "--cycles", 3, "--threads", threads }), expected,
            { "parameters", "state", "gradients" })
    end
end

for _, case in ipairs { { "x86-64-v3", "bf16", 20 }, { "x86-64-v3", "f16", 20 },
    { "x86-64-v4", "bf16", 5 } } do
    local march, precision, rows = table.unpack(case)
    add(("%s %s: the bits are those of tiles that widen their rows"):format(march, precision), function(t)
        check(t, march, precision, rows)
    end)
end

return tests
