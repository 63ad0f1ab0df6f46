-- Failing calls of CUDA, NVRTC and NCCL (GAGEN_DEVICE_FAILS), one at a time or from one on, while a program trains,
-- evaluates and saves on the device library. The program ends with exit 3 and a line that says what failed, or it
-- finishes with the bits of the undisturbed run; it leaves whole checkpoints alone. The first and the last call of each
-- function fail; with make test-all each call does, once and persistently.
local devices = dofile "tests/lua/devices.lua"

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

-- Runs the program with the n-th call failing, and says what is wrong.
local function try(t, programs, p, env, clean, n)
    local settings = table.move(env, 1, #env, 1, {})
    settings[#settings + 1] = "GAGEN_DEVICE_FAILS=" .. n
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
    local count, first, last = 0, {}, {}
    for name in host.read(path):gmatch "[^\n]+" do
        count = count + 1
        first[name], last[name] = first[name] or count, count
    end
    env[#env] = nil
    local chosen, problems = {}, {}
    for n = 1, t.all and count or 0 do chosen[n] = true end
    for name, n in pairs(first) do chosen[n], chosen[last[name]] = true, true end
    for n = 1, count do
        for _, more in ipairs(chosen[n] and { "", t.all and "+" or nil } or {}) do
            local found = try(t, programs, p, env, clean, n .. more)
            if found then problems[#problems + 1] = ("call %d%s: %s"):format(n, more, found) end
        end
    end
    if #problems > 0 then error(table.concat(problems, "\n", 1, math.min(#problems, 40)), 0) end
end)

return tests
