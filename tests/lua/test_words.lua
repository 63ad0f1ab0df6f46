-- Checks of the words: snippets that the sandbox records but gagen's checks refuse, and one that must be accepted.
local REST = [[

data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
model      { linear "fc1" { 8 }, relu {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 4 }
]]

local tests = {}

local function run(t, text, ...)
    local folder = t.temp()
    t.write(folder .. "/spec.lua", text)
    assert(host.link(t.root .. "/specs/data", folder .. "/data"))
    local words = { t.root .. "/" .. t.gagen, ... }
    words.cwd = folder
    return t.run(words)
end

local function check(t, command, text) return run(t, text, command, "spec.lua") end

for _, snippet in ipairs(dofile("tests/box/snippets.lua")) do
    if snippet.checked then
        tests[#tests + 1] = { "snippet " .. snippet[1], function(t)
            local result = check(t, "check", snippet[2])
            t.equal(result.status, 1)
            t.match(result.err, "^spec.lua:1: ")
            t.contains(result.err, snippet.checked)
            assert(result.cpu_seconds < 2.5)
        end }
    elseif snippet.full then
        tests[#tests + 1] = { "snippet " .. snippet[1], function(t)
            local result = check(t, "plan", snippet[2] .. REST)
            t.equal(result.status, 0)
            t.contains(result.out, "1 micro-step of 16 rows")
        end }
    end
end

tests[#tests + 1] = { "a loss that is a function may come before the model", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local words = { 'data { "csv", train = "tiny.csv", target = "last" }', "batch (8)",
        "loss (function(out, batch) return mean(out * out) end)", 'model { linear "fc" { 3 } }',
        'optimizer { "sgd", lr = 0.1 }', "train { updates = 2 }" }
    local function kernels(name)
        local path = programs.folder() .. "/" .. name .. ".lua"
        t.write(path, table.concat(words, "\n") .. "\n")
        local result = programs.gagen { "kernels", path }
        t.equal(result.status, 0, result.err)
        return (result.out:gsub("[^\n]*%.lua[^\n]*", ""))
    end
    local first = kernels("words_order")
    words[3], words[4] = words[4], words[3]
    t.equal(kernels("words_order"), first)
end }

for _, name in ipairs { "abs", "elu", "exp", "gelu", "leaky_relu", "relu", "sigmoid", "silu", "softplus", "sqrt", "square",
    "tanh" } do
    tests[#tests + 1] = { name .. " of a tensor has the defaults of the layer", function(t)
        local function graph(call)
            local result = run(t, ([[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch      (4)
model(function(batch) return linear "b" { 10 } (%s(linear "a" { 4 } (batch.input))) end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1 }
train      { updates = 1 }
]]):format(call), "spec.lua", "--stop-after", "autodiff")
            t.equal(result.status, 0, result.err)
            return result.out
        end
        t.equal(graph(name), graph(name .. " {} "))
    end }
end

return tests
