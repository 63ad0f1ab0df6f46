-- The generator's time is linear in the model: twice the layers take about twice the instructions of the Lua VM, from
-- the spec to the text of the program. Instructions are counted, so the load of the machine has no influence.
local compile = require "command.compile"
local program = require "emit.program.program"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local STEP = 1000       -- instructions between two calls of the hook

-- A model of `count` times these layers, each in the text of a Lua loop over i; `more`: further words of the spec.
local function spec(layers, count, more)
    return ([[
local layers = { linear "first" { 32 } }
for i = 1, %d do
    for _, layer in ipairs { %s } do layers[#layers + 1] = layer end
end
layers[#layers + 1] = linear "last" { 10 }
data      { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch     (16)
model     (layers)
loss      "cross_entropy"
optimizer { "adamw", lr = 1e-3 }
train     { updates = 1 }
%s
]]):format(count, layers, more or "")
end

-- Instructions from the text of a spec to the texts of the program.
local function instructions(t, text)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path, steps = programs.folder() .. "/generate.lua", 0
    t.write(path, text)
    debug.sethook(function() steps = steps + 1 end, "", STEP)
    local done, problem = pcall(function() program.render(compile(path, {})) end)
    debug.sethook()
    if not done then error(problem, 0) end
    return steps * STEP
end

for _, case in ipairs {
    { "layers in a row", 'linear("fc" .. i) { 32 }, relu {}' },
    { "residual blocks", 'residual { layernorm("ln" .. i) {}, linear("fc" .. i) { 32 }, gelu {} }' },
    { "pointwise ops", 'tanh {}' },
    { "layers whose sums are compensated", 'linear("fc" .. i) { 32 }, relu {}',
        'accumulate (4) precision { accum = "kahan" }' },
} do
    local name, layers, more = case[1], case[2], case[3]
    add("twice as many " .. name .. " take at most 2.15 times the instructions", function(t)
        instructions(t, spec(layers, 2, more))        -- loads the modules and templates
        local once, twice = instructions(t, spec(layers, 60, more)), instructions(t, spec(layers, 120, more))
        if twice > 2.15 * once then
            error(("%d instructions for 60, %d for 120: %.2f times"):format(once, twice, twice / once), 0)
        end
    end)
end

return tests
