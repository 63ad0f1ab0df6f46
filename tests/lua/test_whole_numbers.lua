-- Arithmetic makes real numbers of whole ones, whatever it changes: a scale of 1 in a spec gives a model, as 2 does.
local tests = {}

local SPEC = [[
data       { "tensors", train = "whole/rows.safetensors", shuffle = false }
batch      (4)
accumulate (2)
model      (function(b) return linear "a" { 3 } (%s) end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.1, momentum = 0.9 }
train      { updates = 2 }
%s
]]

tests[1] = { "a scale of 1 and a shift of 0 change their type", function(t)
    local formats = t.load("tests/lua/formats.lua")(t)
    local programs, environment = dofile("tests/lua/devices.lua").open(t)
    local ids, target = {}, {}
    for i = 1, 48 do ids[i] = i * 7 % 5 end
    for i = 1, 16 do target[i] = i % 3 end
    formats.write("whole/rows.safetensors", formats.tensors { { "ids", "I32", "<i4", { 16, 3 }, ids },
        { "target", "I32", "<i4", { 16 }, target } })
    local expected
    for i, x in ipairs { "(b.ids * 2) / 2", "b.ids * 1.0", "b.ids + 0", "1 * b.ids", "b.ids / 1" } do
        local p = programs.build("whole_" .. i, SPEC:format(x, ""))
        local found = programs.dump(p, {})
        expected = expected or found
        programs.close(found, expected, 0)
    end
    local p = programs.build("whole_cuda", SPEC:format("b.ids * 1.0", 'target "cuda"'))
    programs.close(programs.dump(p, { env = environment() }), expected, 1e-6, { "parameters" })
end }

return tests
