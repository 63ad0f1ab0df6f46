-- The layer `detach`, through which no gradient flows: as with frozen parameters; in loops; on a device.
local devices = dofile "tests/lua/devices.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data       { "csv", train = "tiny.csv", target = "last" }
batch      (5)
accumulate (2)
model (function(batch)
    local x = batch.input
%s
end)
loss       "cross_entropy"
optimizer  { "sgd", lr = 0.2, momentum = 0.5%s }
train      { updates = 4, seed = 2 }
precision  "f64"
]]

local function dump(t, name, body, more)
    local programs = t.load("tests/lua/programs.lua")(t)
    local p = programs.build("detach_" .. name, SPEC:format(body, more or ""))
    return programs.dump(p, {}), programs
end

local PRODUCT = [[
    local b = linear "b" { 3 } (tanh(linear "c" { 5 } (x)))
    return linear "a" { 3 } (x) * %s]]

add("parameters behind it are as frozen ones", function(t)
    local stopped, programs = dump(t, "stopped", PRODUCT:format "detach(b)")
    local frozen = dump(t, "frozen", PRODUCT:format "b",
        ', groups = { { "b.*", frozen = true }, { "c.*", frozen = true } }')
    programs.identical(stopped, frozen, { "parameters" })
end)

local STEP = 'tanh(linear(%s) { 6 } (detach(h)) + linear(%s) { 6 } (x))'

add("a loop whose iterations stop the gradient is that loop written out", function(t)
    local loop, programs = dump(t, "loop", ([[
    local h = linear "first" { 6 } (x)
    h = times(3) "t" (function(h) return %s end) (h)
    return linear "out" { 3 } (h)]]):format(STEP:format('"w"', '"v"')))
    local written = dump(t, "written", ([[
    local h = linear "first" { 6 } (x)
    for i = 0, 2 do h = %s end
    return linear "out" { 3 } (h)]]):format(STEP:format('"t." .. i .. ".w"', '"t." .. i .. ".v"')))
    programs.close(loop, written, 1e-14, { "parameters" })
end)

add("a device trains with it as the C target does", function(t)
    devices.same_as_c(t, "detach", SPEC:format([[
    local h = linear "h" { 6 } (x)
    h = h + detach(where(gt(h, 0), 1, -1) - h)
    return linear "out" { 3 } (h * detach(reshape { 1 } (max(h))))]], ""), 1e-11, devices.LIGHT)
end)

add("a list of layers may have it", function(t)
    local list, programs = dump(t, "list", 'return block "l" { linear "b" { 4 }, detach {}, linear "a" { 3 } } (x)')
    local frozen = dump(t, "list_frozen", 'return block "l" { linear "b" { 4 }, linear "a" { 3 } } (x)',
        ', groups = { { "l.b.*", frozen = true } }')
    programs.identical(list, frozen, { "parameters" })
end)

return tests
