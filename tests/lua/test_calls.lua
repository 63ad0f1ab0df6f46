-- Failing calls of CUDA, NVRTC and NCCL (GAGEN_DEVICE_FAILS), one at a time or from one on, while a program trains,
-- evaluates and saves on the device library. The program ends with exit 3 and a line that says what failed, or it
-- finishes with the bits of the undisturbed run; it leaves whole checkpoints alone. The first and the last call of each
-- function fail; with make test-all each call does, once and persistently.
local devices = dofile "tests/lua/devices.lua"
local ordered = require "base.ordered"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

local SPEC = [[
data       { "csv", train = "digits/digits.csv.gz", target = "last", scale = 1/16, split = { fold = 1, of = 5 } }
batch      (16)
accumulate (2)
model      { linear "fc1" { 24 }, tanh {}, linear "fc2" { 10 } }
loss       "cross_entropy"
optimizer  { "adamw", lr = 1e-2 }
train      { updates = 3, seed = 3 }
eval       { every = 2, batches = 2 }
checkpoint { every = 2 }
precision  "bf16"
target     "cuda"
]]

-- A run with these settings of the library, in a folder of its own.
local function run(t, programs, p, settings)
    local folder = t.temp()
    local result = programs.train(p, { "--checkpoint", folder .. "/c", "--dump", folder .. "/dump", "--log",
        folder .. "/log", env = settings, status = false })
    local bits = folder .. "/dump/parameters.safetensors"
    result.bits, result.folder = host.exists(bits) == "file" and host.read(bits), folder
    return result
end

-- Runs the program with this call failing, and says what is wrong.
local function try(t, programs, p, env, clean, which)
    local settings = table.move(env, 1, #env, 1, {})
    settings[#settings + 1] = "GAGEN_DEVICE_FAILS=" .. which
    local result = run(t, programs, p, settings)
    local checkpoints = result.folder .. "/c"
    for _, name in ipairs(host.exists(checkpoints) == "folder" and host.list(checkpoints) or {}) do
        if not name:find "^cycle%-%d+$" and name ~= ".lock" then return "left behind: " .. name end
    end
    if result.timed_out then return "it hangs" end
    if result.status == 0 then return result.bits ~= clean.bits and "it ends as if nothing was and has other bits" end
    if result.status ~= 3 then return ("status %d: %s"):format(result.status, result.err) end
    local last = result.err:match "([^\n]*)\n$" or ""
    if last:find "^calls: device 0: .+: CUDA_ERROR_UNKNOWN %(999%): unknown error$" then return false end
    return not last:find "^calls: [%w]*NVRTC" and not last:find "^calls: libnvrtc: " and "no message: " .. result.err
end

add("each call of the driver and NVRTC that fails ends a run with exit 3, or changes nothing", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local p = programs.build("calls", SPEC)
    local env, path = environment(), t.root .. "/" .. t.temp() .. "/calls"
    local cache = t.temp()
    t.equal(t.run { "chmod", "700", t.root .. "/" .. cache }.status, 0)
    env[#env + 1] = ("GAGEN_KERNEL_CACHE=%s/%s"):format(t.root, cache)
    env[#env + 1] = "GAGEN_DEVICE_CALLS=" .. path
    local clean = run(t, programs, p, env)
    t.equal(clean.status, 0, clean.err)
    assert(host.read(path):find "nvrtcCompileProgram")
    t.run { "rm", path }
    t.equal(run(t, programs, p, env).bits, clean.bits)      -- with the kernels of the first start
    local count = {}
    for name in host.read(path):gmatch "[^\n]+" do count[name] = (count[name] or 0) + 1 end
    env[#env] = nil
    local problems = {}
    for name, most in ordered.each(count) do
        for n = 1, most, t.all and 1 or math.max(most - 1, 1) do
            for _, more in ipairs { "", t.all and "+" or nil } do
                local which = ("%s:%d%s"):format(name, n, more)
                local found = try(t, programs, p, env, clean, which)
                if found then problems[#problems + 1] = which .. ": " .. found end
            end
        end
    end
    if #problems > 0 then error(table.concat(problems, "\n", 1, math.min(#problems, 40)), 0) end
end)

-- Two ranks that divide the state; rank 1 alone has these settings. Returns t.run's result with `folder`.
local function run_ranks(t, p, env, settings)
    local folder, words = t.temp(), table.move(env, 1, #env, 1, {})
    t.write(folder .. "/rank", ('#!/bin/sh\n[ "$RANK" = 0 ] || export %s\nexec "$@"\n'):format(settings))
    local result = t.run { t.root .. "/tests/device/ranks", "2", "sh", folder .. "/rank", p.train, "--quiet",
        "--checkpoint", folder .. "/c", "--dump", folder .. "/dump", env = words }
    local bits = folder .. "/dump/parameters.safetensors"
    result.folder, result.bits = folder, host.exists(bits) == "file" and host.read(bits)
    return result
end

add("a checkpoint that one rank cannot fetch from its device is one of no rank, and training goes on", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local p = programs.build("calls_ranks", SPEC .. 'parallel "zero1"\n')
    local clean = run_ranks(t, p, environment(), "GAGEN_DEVICE_FAILS=")
    t.equal(clean.status, 0, clean.err)
    local result = run_ranks(t, p, environment(), "GAGEN_DEVICE_FAILS=cuMemcpyDtoH_v2:1")
    t.equal(result.status, 0, result.err)
    t.contains(result.err, "calls_ranks: cycle 2: device 1: downloading: CUDA_ERROR_UNKNOWN (999): unknown error; "
        .. "training goes on\n")
    t.contains(result.err, "calls_ranks: cycle 2: rank 1 failed with code 3; its own line says why; training goes on\n")
    t.equal(host.exists(result.folder .. "/c/cycle-000000002"), false)
    t.equal(host.exists(result.folder .. "/c/cycle-000000003"), "folder")
    assert(result.bits == clean.bits, "other bits")
end)

add("a rank that NCCL does not connect ends at once and says why, and so do the others inside NCCL", function(t)
    devices.needs_library(t)
    local programs, environment = devices.open(t)
    local p = programs.build("calls_ranks", SPEC .. 'parallel "zero1"\n')
    local env = environment()
    env[#env + 1] = "GAGEN_TIMEOUT=10"
    local result = run_ranks(t, p, env, "GAGEN_DEVICE_FAILS=ncclCommInitRank:1")
    t.equal(result.status, 3, result.err)
    t.contains(result.err, "calls_ranks: rank 1: NCCL failed in ncclCommInitRank: system error (2)\n")
    t.contains(result.err, "rank 1 on ")
    t.contains(result.err, " failed with code 3; its own line says why at the start, NCCL's start")
end)

return tests
