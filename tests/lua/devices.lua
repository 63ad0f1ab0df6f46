-- devices: how tests run programs of the CUDA target: on GPUs if GAGEN_GPU_CHECK says how many, else on the
-- device library of tests/device.
local devices = {}

--- How many GPUs the tests are to use; 0: the device library.
function devices.gpus(t) return tonumber(t.environment("GAGEN_GPU_CHECK") or "0") end

--- Leaves a test out that needs the device library.
function devices.needs_library(t)
    if devices.gpus(t) > 0 then t.not_run("needs the device library") end
end

--- What a test works with: the programs, where the device library lies, and the environment of a run.
function devices.open(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    if devices.gpus(t) > 0 then
        return programs, function() return { "GAGEN_TIMEOUT=60" } end,
            t.root .. "/" .. t.build
    end
    local build = t.root .. "/" .. t.build
    local library = build .. "/device/lib"
    local stamp = host.sha256(assert(host.read(library .. "/libdevice.so"), "make device")
        .. host.read(library .. "/shim.h")):sub(1, 16)
    local function environment(settings)
        local env = { "GAGEN_TIMEOUT=30", "LD_LIBRARY_PATH=" .. library }
        local kind = "plain"
        for _, setting in ipairs(settings or {}) do
            env[#env + 1] = setting
            if setting == "GAGEN_DEVICE_CHECK=1" then kind = "check" end
        end
        env[#env + 1] = ("GAGEN_KERNEL_CACHE=%s/tests/kernels-%s-%s"):format(build, kind, stamp)
        return env
    end
    return programs, environment, build
end

--- Settings of the device library: every order of what nothing orders, by this seed, and its checks.
function devices.checked(seed)
    return { "GAGEN_DEVICE_CHECK=1", "GAGEN_DEVICE_LAZY=1", "GAGEN_DEVICE_SEED=" .. seed }
end

return devices
