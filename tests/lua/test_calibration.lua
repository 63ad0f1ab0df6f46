-- Predicted times: by hand from written rates, in plan and profile; rates from programs of known times; the emitted
-- program knows nothing of them.
local calibration = require "emit.program.calibration"

local SPEC = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16 }
batch      (16)
accumulate (2)
target     { "c", threads = 1, march = "generic" }
model      { linear "fc1" { 24 }, tanh {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 40 }
]]

-- Rates of 1 GFLOP/s and 1 GB/s; products reach the half, and no call takes less than call_us.
local function rates(call_us, threads, speed)
    return { threads = threads, call_us = call_us, rates = { f32 = 1e9 * speed, memory = 1e9 * speed, cache = 1e9 },
        efficiencies = { f32 = { linear_in_out = { { 1, 0.5 }, { 1e6, 0.5 } } } } }
end

-- A folder for XDG_CACHE_HOME with these sets for the profile generic.
local function cache_with(t, sets)
    local folder = t.root .. "/" .. t.temp()
    local path = calibration.path("generic"):match("[^/]*$")
    t.write(folder .. "/gagen/" .. path,
        host.json { format = 1, profile = "generic", date = "2026-01-02", sets = sets })
    return "XDG_CACHE_HOME=" .. folder, folder .. "/gagen/" .. path
end

local function gagen(t, words, env)
    local programs = t.load("tests/lua/programs.lua")(t)
    words.env = { env }
    return programs.gagen(words)
end

local function spec_of(t)
    local path = t.load("tests/lua/programs.lua")(t).folder() .. "/calibrated.lua"
    t.write(path, SPEC)
    return path
end

return {
    { "times by hand: efficiencies between two floors and beyond, threads between two numbers", function(t)
        local set = { threads = 1, call_us = 2, rates = { f32 = 1e9, memory = 1e9 },
            efficiencies = { f32 = { relu = { { 10, 0.2 }, { 1000, 0.6 } } } } }
        local found = { sets = { set, { threads = 3, call_us = 1, rates = { f32 = 3e9, memory = 3e9 },
            efficiencies = {} } } }
        local function us(kind, flops, bytes, threads)
            return calibration.predict(found, "f32", { kind = kind, flops = flops, bytes = bytes }, threads)
        end
        t.near(us("relu", 100000, 5000, 1), 100 / 0.4, 1e-9)        -- in the middle of the logarithms
        t.near(us("relu", 0, 5000, 1), 5 / 0.2, 1e-9)
        t.near(us("relu", 5e6, 0, 1), 5000 / 0.6, 1e-9)
        t.near(us("relu", 10, 10, 1), 2, 1e-9)                      -- no less than a call
        t.near(us("sum", 3000, 6000, 1), 6 + 2, 1e-9)               -- of a kind that was not measured
        t.near(us("sum", 3000, 6000, 3), 2 + 1, 1e-9)
        t.near(us("sum", 3000, 6000, 2), 1 / (0.5 / 8 + 0.5 / 3), 1e-9)
        t.near(us("sum", 3000, 6000, 8), 3, 1e-9)
    end },
    { "plan says the times of measured rates, and else those of the profile", function(t)
        local path = spec_of(t)
        local env = cache_with(t, { rates(0.5, 1, 1) })
        local result = gagen(t, { "plan", path }, env)
        t.equal(result.status, 0, result.err)
        -- (16, 64) x (64, 24): 2 * 16 * 64 * 24 = 49,152 FLOP, and 384 of tanh behind them, at half of 1 GFLOP/s
        t.match(result.out, "\n  fc1_forward +forward +2 +49,536 +%S+ KiB +99%.1 ")
        local sum = t.match(result.out, "\ntime +(%S+) ms of an update predicted with 1 thread: rates measured here on "
            .. "2026%-01%-02\n")
        local ms = 0
        for _, k in ipairs(host.parse_json(gagen(t, { "plan", path, "--json" }, env).out).kernels) do
            local floor = math.max(k.flops, k.bytes) / 1e3
            ms = ms + k.calls * (k.kind == "linear_in_out" and floor / 0.5 or floor + 0.5) / 1e3
        end
        t.near(tonumber(sum), ms, 0.006 * ms)
        local coarse = gagen(t, { "plan", path }, "XDG_CACHE_HOME=" .. t.root .. "/" .. t.temp())
        t.contains(coarse.out, "predicted with 1 thread: coarse rates of the profile; gagen doctor --calibrate")
    end },
    { "no byte of a program or of plan --json depends on measured rates", function(t)
        local path, folder = spec_of(t), t.temp()
        local json = {}
        for i, env in ipairs { cache_with(t, { rates(0.5, 1, 1) }), "XDG_CACHE_HOME=" .. t.root .. "/" .. folder } do
            t.equal(gagen(t, { path, "-o", ("%s/%d/p"):format(folder, i) }, env).status, 0)
            json[i] = gagen(t, { "plan", path, "--json" }, env).out
        end
        t.equal(json[1], json[2])
        t.equal(t.shell(("diff -r %s/1 %s/2"):format(folder, folder)).out, "")
    end },
    { "profile has measured beside predicted times, and their median error", function(t)
        local env = cache_with(t, { rates(1000, 1, 1e6) })      -- each call: 1 ms
        local programs = t.load("tests/lua/programs.lua")(t)
        local result = programs.gagen { "profile", spec_of(t), "-o", t.temp() .. "/p", "--", "--cycles", "3",
            "--overfit", "1", env = { env, "CFLAGS=-O0" } }
        t.equal(result.status, 0, result.err)
        local total, all, errors = 0, 0, {}
        for name, calls, ms, share, predicted, error in
            result.out:gmatch("\n([%w_]+) +([%d,]+) +([%d.]+) +([%d.]+) +([%d.]+) +([+-]%d+) %%") do
            local at_boundary = name == "update_all" or name == "gradient_partials"
            t.near(tonumber(predicted), at_boundary and 3 or tonumber(calls), 1e-9)
            total, all = total + tonumber(ms), all + tonumber(predicted)
            if tonumber(share) > 1.05 then errors[#errors + 1] = math.abs(tonumber(error)) end
            if name == "fc1_forward" then t.equal(calls, "6") end
        end
        assert(all > 3 * 15, "rows of kernels")
        local measured, sum = t.match(result.out, "\n([%d.]+) ms measured, ([%d.]+) ms predicted with 1 thread: rates "
            .. "measured here on 2026%-01%-02\n")
        t.near(tonumber(measured), total, 0.02)
        t.near(tonumber(sum), all, 1e-9)
        table.sort(errors)
        local middle = tonumber((t.match(result.out,
            "\nmedian error of the kernels above 1 %% of the time: (%d+) %%\n$")))
        assert(middle >= errors[1] and middle <= errors[#errors], "median error")
    end },
    { "doctor --calibrate: efficiencies of kernels whose times are known", function(t)
        local folder = t.root .. "/" .. t.temp()
        t.write(folder .. "/cc", [[
#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" != -o ] || to=$2; shift; done
case $to in
*rates) echo "#!/bin/sh
echo f32 1e11
echo memory 1e10
echo cache 5e10" > "$to" ;;
*train-probe.new) echo "#!/bin/sh
echo 'update_all       30     40.000   90.0   4.05   7.55   9.000  spec.lua:1'
echo 'tally            60      0.030   10.0   4.05   7.55   0.400  spec.lua:1'" > "$to" ;;
*) [ -z "$to" ] || : > "$to"; echo "a compiler" ;;
esac
[ -z "$to" ] || chmod +x "$to"
]])
        t.equal(t.run { "chmod", "+x", folder .. "/cc" }.status, 0)
        local result = t.run { t.gagen, "doctor", "--calibrate", "--march", "generic", env = { "CC=" .. folder .. "/cc",
            "XDG_CACHE_HOME=" .. folder, "TMPDIR=" .. folder } }
        t.equal(result.status, 0, result.err)
        local path = t.match(result.err, "wrote (%S+)\n")
        local found = host.parse_json(host.read(path))
        local set = found.sets[1]
        t.equal({ found.profile, set.threads, set.rates },
            { "generic", 1, { f32 = 1e11, memory = 1e10, cache = 5e10 } })
        t.near(set.call_us, 0.4, 1e-9)
        t.write(folder .. "/data/tokens.bin", ("\1\0"):rep(2049))
        local plan = host.parse_json(gagen(t, { "plan", "templates/calibrate/tokens.lua", "--json" },
            "GAGEN_DATA=" .. folder .. "/data").out)
        local floor
        for _, k in ipairs(plan.kernels) do
            if k.name == "update_all" then floor = math.max(k.flops / 1e11, k.bytes / 1e10) * 1e6 end
        end
        local points = set.efficiencies.f32.update
        t.near(points[#points][1], floor, 1e-6 * floor)
        t.near(points[#points][2], floor / 10000, 1e-9)
        t.equal(host.list(folder .. "/data"), { "tokens.bin" })
    end },
    { "a damaged file of rates and a lone --march are refused", function(t)
        local env, path = cache_with(t, {})
        t.write(path, "{ broken")
        local result = gagen(t, { "plan", spec_of(t) }, env)
        t.equal(result.status, 3)
        t.contains(result.err, "no calibration of this gagen: gagen doctor --calibrate measures again")
        result = gagen(t, { "doctor", "--march", "generic" })
        t.equal(result.status, 1)
        t.contains(result.err, "doctor: --march needs --calibrate")
    end },
}
