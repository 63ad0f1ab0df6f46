-- Parameters divided over the ranks in chunks that cross layers, with a loss scale: an overflow that one rank meets.
local json = dofile "tests/lua/json.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- The last micro-batch of cycles 2, 5 and 6 has rows whose gradient overflows with a scale of 65536, and not with 32768,
-- on the last rank alone (test_peers says why). A skip halves the scale, two updates double it.
local OVERFLOWS, SCALES = { [2] = true, [5] = true, [6] = true }, { 65536, 65536, 32768, 32768, 65536, 32768 }
local SKIPPED = { 0, 1, 1, 1, 2, 2 }

local OVERFLOW = [[
data       { "csv", train = "zero3_overflow.csv", target = "last", shuffle = false }
batch      (3)
accumulate (3)
model      { linear "fc1" { 8 }, times(4) "h" { relu {}, linear "fc" { 8 } }, relu {}, linear "fc2" { 3 } }
loss       { "cross_entropy", weight = "sum" }
optimizer  { "adamw", lr = 1e-3 }
precision  "f16"
scaler     { hysteresis = 1, growth_interval = 2 }
train      { updates = 6, seed = 3 }
parallel   { %s }
]]

local function write_overflows(t, programs)
    local lines = {}
    for k = 0, 6 * 6 * 3 - 1 do
        lines[k + 1] = OVERFLOWS[k // 18 + 1] and k // 3 % 6 == 5 and "9000,-7000,8000," .. k % 3
            or ("%.3f,%.3f,%.3f,%d"):format(math.sin(k), math.cos(3 * k), math.sin(k * k), k % 3)
    end
    t.write(programs.folder() .. "/data/zero3_overflow.csv", table.concat(lines, "\n") .. "\n")
end

add("f16: an overflow on one rank skips the update on all and halves the scale, as with zero2", function(t)
    local programs, dumps = t.load("tests/lua/programs.lua")(t), {}
    write_overflows(t, programs)
    for i, mode in ipairs { '"zero2"', '"zero3", chunk_size = 100' } do
        local p, log = programs.build("zero3_overflow_" .. i, OVERFLOW:format(mode), { comm = "mpi",
            sources = i == 2 and { "tests/e2e/late_gathers.c" } or nil }), t.temp() .. "/log"
        dumps[i] = programs.dump(p, { ranks = 2, "--threads", 1, "--cycles", 6, "--log", log })
        local scales, skipped = {}, {}
        for _, event in ipairs(json.lines(host.read(log))) do
            if event.event == "update" then
                scales[#scales + 1], skipped[#skipped + 1] = event.scale, event.skipped
            end
        end
        t.equal({ scales, skipped }, { SCALES, SKIPPED })
    end
    programs.identical(dumps[2], dumps[1], { "parameters", "gradients", "state" })
end)

return tests
