-- What gagen knows is found by folder: an op, an optimizer and a schedule are one file each, dropped into a
-- copy of the scripts that --dev names. The program trains with them, and its numbers are those of their
-- formulas, computed here.
local tests = {}

local OP = [[
-- cube: for a test.

pointwise "cube" {
    doc = "x^3",
    arity = 1, value = function(_, x) return x * x * x end,
    grad = function(_, dy, x) return dy * 3 * x * x end,
    sample = "cube {}",
}
]]

local OPTIMIZER = [[
-- half_sgd: for a test.

optimizer "half_sgd" {
    doc = "w -= lr g / 2",
    fields = { { name = "lr", type = "num", required = true, min = 0, doc = "learning rate" } },
    scope = "element", zero = true,
    state = function() return {} end,
    update = function(_, w, g, _, lr) return { { "w", w - 0.5 * lr * g } } end,
}
]]

local SCHEDULE = [[
-- harmonic: for a test.

schedule "harmonic" {
    doc = "base / (t + 1)",
    fields = {},
    factor = function(_, t, _, base) return base / (t + 1) end,
}
]]

local SPEC = [[
data       { "csv", train = "rows.csv", target = "last", shuffle = false }
batch      (2)
model      { linear "fc" { 1, bias = false }, cube {} }
init       { { "fc.weight", value = 0.5 } }
loss       "mse"
optimizer  { "half_sgd", lr = 0.1 }
schedule   "harmonic"
precision  "f64"
train      { updates = 3 }
]]

local ROWS = { { 0.5, 1 }, { -0.25, 0.5 }, { 1, 0.75 }, { 0.75, -0.5 } }

-- The weight after three updates of the mean of (x^3 w^3 - y)^2 over two rows.
local function expected()
    local w = 0.5
    for t = 0, 2 do
        local d = 0
        for i = 1, 2 do
            local x, y = ROWS[t % 2 * 2 + i][1], ROWS[t % 2 * 2 + i][2]
            d = d + (((w * x) ^ 3 - y) * 2) * 3 * (w * x) ^ 2 * x / 2
        end
        w = w - 0.5 * 0.1 / (t + 1) * d
    end
    return w
end

tests[1] = { "an op, an optimizer and a schedule are one file each", function(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.root .. "/" .. t.temp()
    local copied = t.run { "sh", "-c", ('mkdir -p "$1/dev" "$1/data" && cp -r gen templates runtime "$1/dev"'),
        "sh", folder }
    t.equal(copied.status, 0, copied.err)
    t.write(folder .. "/dev/gen/catalog/ops/cube.lua", OP)
    t.write(folder .. "/dev/gen/catalog/optim/half_sgd.lua", OPTIMIZER)
    t.write(folder .. "/dev/gen/catalog/schedule/harmonic.lua", SCHEDULE)
    local rows = {}
    for i, row in ipairs(ROWS) do rows[i] = ("%.2f,%.2f\n"):format(row[1], row[2]) end
    t.write(folder .. "/data/rows.csv", table.concat(rows))
    t.write(folder .. "/dropped.lua", SPEC)
    local plain = programs.gagen { "check", folder .. "/dropped.lua" }
    t.equal(plain.status, 1, "without --dev the words are unknown")
    local made = programs.gagen { "--dev", folder .. "/dev", folder .. "/dropped.lua", "-o", folder .. "/out" }
    t.equal(made.status, 0, made.err)
    local built = t.run { "env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "make", "-s", "-C", folder .. "/out",
        "CFLAGS=-O1", timeout = 200 }
    t.equal(built.status, 0, built.err)
    local trained = t.run { folder .. "/out/train", "--quiet", "--dump", folder .. "/dump" }
    t.equal(trained.status, 0, trained.err)
    local weight = programs.tensors(folder .. "/dump/parameters.safetensors")["fc.weight"].values[1]
    t.near(weight, expected(), 1e-14)
end }

tests[#tests + 1] = { "a folder that is no checkout is refused", function(t)
    local result = t.run { t.root .. "/" .. t.gagen, "--dev", t.temp(), "version" }
    t.equal(result.status, 1)
    t.equal(result.err, "gagen: --dev: no gen/gagen.lua is in that folder, expected a checkout of gagen\n")
end }

return tests
