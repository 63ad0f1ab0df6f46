-- The layer `parameter`, a trained tensor without rows: gradients against differences, a device, files, one row as
-- many, several ranks, and what is refused.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- A class token, places, latents that ask, a factor for each channel, and one that all layers of a loop share.
local MODEL = [[(function(batch)
    local x = linear "e" { 6 } (reshape { 4, 1 } (batch.input))
    x = concat { axis = 2 } (parameter "token" { 1, 6, value = 0.3 }, x) + parameter "places" { 1, 5, 6 }
    local scale = sum { axis = 1 } (parameter "scale" { 2, 6, value = 0.25 })
    x = times(2) "h" (function(x)
        local q = linear "q" { 6 } (tanh(parameter "latents" { 5, 6, value = 0.2 }))
        local h = attend { heads = 2 } (q, linear "k" { 6, bias = false } (x), linear "v" { 6 } (x))
        return x + scale * parameter "gamma" { 6, value = 0.4 } * h
    end) (x)
    return exp(parameter "t" { 3 }) * linear "out" { 3 } (tanh(sum { axis = 2 } (x)))
end)]]

local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (5)
accumulate { 2, tail = "flush" }
model %s
init       { { "places", normal = 0.1 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 4, seed = 2 }
precision  "f64"
]]

add("every gradient agrees with differences", function(t)
    local numeric = t.load("tests/numeric/numeric.lua")(t)
    local _, report = numeric.differences { model = MODEL, init = '{ { "places", normal = 0.1 } }' }
    for _, name in ipairs { "token", "places", "scale", "h.0.latents", "h.1.gamma", "t" } do
        t.contains("\n" .. report, "\n" .. name .. ": ok")
    end
end)

add("a device trains them as the C target does", function(t)
    devices.same_as_c(t, "parameters", SPEC:format(MODEL), 1e-11, devices.LIGHT)
end)

add("names, extents and first values in files", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local init = t.temp() .. "/init.safetensors"
    programs.train(programs.build("parameters_c", SPEC:format(MODEL)), { "--save-init", init })
    local found = programs.tensors(init)
    for name, wanted in next, { token = { 6, 0.3 }, scale = { 12, 0.25 }, ["h.1.gamma"] = { 6, 0.4 },
        ["h.0.latents"] = { 30, 0.2 }, t = { 3, 0 } } do
        t.equal(#found[name].values, wanted[1], name)
        for _, x in ipairs(found[name].values) do t.near(x, wanted[2], 1e-15) end
    end
    assert(found.places.values[1] ~= found.places.values[2], "init draws")
end)

add("one row gives what many rows give", function(t)
    local x = t.load("tests/lua/predicted.lua")(t)
    local p = x.trained("parameters_predict", SPEC:format(MODEL):gsub('precision.*', ""), { predict = true })
    x.both(p, x.data() .. "tiny.csv")
end)

add("two ranks, and values computed again: as one rank", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local function dump(name, rows, more, o)
        local text = SPEC:format(MODEL):gsub("batch      %(5%)", ("batch (%d)"):format(rows)) .. more
        return programs.dump(programs.build("parameters_" .. name, text, o and { comm = "mpi" }), o or {})
    end
    local one = dump("one", 6, "")
    programs.close(dump("zero3", 3, 'parallel { "zero3", ranks = 2 }\n', { ranks = 2 }), one, 1e-11, { "parameters" })
    programs.identical(dump("again", 6, 'memory { recompute = { "h.*" } }\n'), one, { "parameters" })
end)

add("wrong uses are refused", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local path = programs.folder() .. "/parameters_refused.lua"
    local function refused(model, text, loss)
        t.write(path, SPEC:format(model):gsub("init[^\n]*\n", ""):gsub('"cross_entropy"', loss or '"cross_entropy"'))
        local result = programs.gagen { "check", path }
        t.equal(result.status, 1, model .. result.err)
        t.contains(result.err, "parameters_refused.lua:" .. text)
    end
    local function returned(expression, text)
        refused(('(function(batch) local x = linear "l" { 5 } (batch.input) return %s end)'):format(expression),
            "4: " .. text)
    end
    local BESIDE = "parameters of shape (5, 5) beside rows of shape (5, 5) found, expected no axis for the rows: 1 at "
        .. "most"
    returned('x * parameter "p" { 5, 5 }', "mul: " .. BESIDE)
    returned('concat { axis = 2 } (x, parameter "p" { 5, 5 })', "concat: " .. BESIDE)
    returned('x * parameter "p" { 2, 1, 5 }', "mul: parameters of shape (2, 1, 5) beside rows of shape (5, 5) found")
    returned('x * parameter "p" { 4 }', "mul: shapes (5, 5) and (4) differ")
    returned('parameter "p" { 5, 3 }', "model: the function gives parameters alone, of shape (5, 3), expected values "
        .. "for each row")
    returned('x + parameter "p" {}', "parameter 'p': extents is missing, expected an integer")
    returned('x + parameter "p" { 0 }', "parameter 'p': extents is 0, 1..2^31-1 expected")
    returned('x + sum(parameter "p" { 5 })', "sum: shape (5) has one axis alone, expected two axes or more")
    returned('x + sum { axis = 3 } (parameter "p" { 2, 5 })', "sum: axis is 3, expected one of 1..2 of shape (2, 5)")
    returned('x + dropout(0.5)(parameter "p" { 5 })', "dropout: the value has shape (5), expected the 5 rows")
    returned('x + batchnorm "b" {} (parameter "p" { 5, 5 })', "batchnorm 'b': ")
    refused('{ linear "l" { 3 }, parameter "p" { 3 } }', "4: parameter 'p': gives a tensor, which stands in a function")
    refused('(function(batch) return { x = batch.input, p = parameter "p" { 5 } } end)', "5: loss: the function gives "
        .. "shape (5), expected one value or more per row", "{ function(out, batch) return square(out.p) end }")
end)

return tests
