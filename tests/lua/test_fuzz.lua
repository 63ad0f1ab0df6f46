-- Random models in f64 against finite differences: layers shared inside and outside of regions,
-- outer tensors read in bodies, random accumulation, recompute and left-out passes. Each model is a
-- function of its seed; a failure prints the spec. GAGEN_FUZZ=first:count chooses others.
local WIDTH = 6

-- A small generator of our own, so that a seed means the same model everywhere.
local function random_of(seed)
    local state = seed * 2654435761 % 4294967296
    return function(n)
        state = (state * 1103515245 + 12345) % 2147483648
        return state // 65536 % n + 1
    end
end

local Writer = {}
Writer.__index = Writer

function Writer:line(format, ...) self.lines[#self.lines + 1] = self.pad .. format:format(...) end

function Writer:new_name(prefix)
    self.count = self.count + 1
    return prefix .. self.count
end

function Writer:pick(list) return list[self.random(#list)] end

-- One more tensor of (rows, WIDTH), from those in scope.
function Writer:step(scope, layers, may_loop)
    local x, y = self:pick(scope), self:pick(scope)
    local kind = self.random(may_loop and 8 or 6)
    local name = self:new_name("t")
    if kind == 1 and #layers > 0 then
        self:line("local %s = tanh(%s(%s))", name, self:pick(layers), x)
    elseif kind <= 2 then
        self:line('local %s = linear "%s" { %d } (%s)', name, self:new_name("fc"), WIDTH, x)
    elseif kind == 3 then
        self:line("local %s = %s(%s)", name, self:pick { "tanh", "gelu", "scale { 0.7 }" }, x)
    elseif kind == 4 then
        self:line("local %s = tanh(%s * %s) + %s", name, x, y, self:pick(scope))
    elseif kind == 5 then
        self:line("local %s = %s - 0.5 * %s", name, x, y)
    elseif kind == 6 then
        self:line('local %s = residual { linear "%s" { %d }, gelu { "tanh" } } (%s)', name,
            self:new_name("fc"), WIDTH, x)
    else
        self:loop(name, x, scope, layers)
    end
    scope[#scope + 1] = name
end

function Writer:loop(name, x, scope, layers)
    local inner, h = table.move(scope, 1, #scope, 1, {}), self:new_name("h")
    self:line('local %s = times(%d) "%s" (function(%s)', name, self.random(3), self:new_name("r"), h)
    local pad = self.pad
    self.pad = pad .. "    "
    inner[#inner + 1] = h
    for _ = 1, 1 + self.random(4) do self:step(inner, layers, false) end
    self:line("return tanh(%s + 0.5 * %s)", inner[#inner], h)
    self.pad = pad
    self:line("end) (%s)", x)
end

local function model_of(seed)
    local w = setmetatable({ random = random_of(seed), lines = {}, pad = "", count = 0 }, Writer)
    w:line("(function(batch)")
    w.pad = "    "
    local layers = { "shared1", "shared2" }
    for _, name in ipairs(layers) do w:line('local %s = linear "%s" { %d }', name, name, WIDTH) end
    w:line('local first = tanh(linear "first" { %d } (batch.input))', WIDTH)
    local scope = { "first" }
    for _ = 1, 2 + w.random(6) do w:step(scope, layers, true) end
    w:line('return linear "last" { 3 } (%s + %s)', scope[#scope], w:pick(scope))
    w.pad = ""
    w:line("end)")
    return table.concat(w.lines, "\n"), w.random
end

local function case_of(seed)
    local model, random = model_of(seed)
    local a = random(3)
    local options = {}
    for _, name in ipairs { "layout", "fusion" } do
        if random(3) == 1 then table.move({ "--without", name }, 1, 2, #options + 1, options) end
    end
    return { model = model, accumulate = "(" .. a .. ")", batch = 12 // a, rows = 12,
        options = options, more = random(2) == 1 and 'memory { recompute = { "*" } }' or nil }
end

local first, count = (os.getenv "GAGEN_FUZZ" or ""):match("^(%d+):(%d+)$")
first, count = tonumber(first or 1), tonumber(count or (os.getenv "GAGEN_TEST_ALL" and 40 or 4))
local tests = {}
for seed = first, first + count - 1 do
    tests[#tests + 1] = { ("random model %d"):format(seed), function(t)
        local numeric = t.load("tests/numeric/numeric.lua")(t)
        local program = numeric.differences(case_of(seed))
        t.near(numeric.distance(program:gradient(), program:gradient { "THREADS=3" }), 0, 0)
    end }
end
return tests
