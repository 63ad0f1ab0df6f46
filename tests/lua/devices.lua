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

--- The losses of the updates of a run with these options.
function devices.losses(programs, p, o)
    local list = {}
    for _, event in ipairs(programs.events(p, o)) do
        if event.event == "update" then list[#list + 1] = event.loss end
    end
    return list
end

--- Losses and tensors after `cycles` cycles (5) of the spec `text` on the device library, in three orders, must
--- be those of the C target within `bound`.
function devices.same_as_c(t, name, text, bound, cycles)
    cycles = cycles or 5
    local programs, environment = devices.open(t)
    local oracle = programs.build(name .. "_c", text)
    local device = programs.build(name .. "_cuda", text .. 'target "cuda"\n')
    local start = t.temp() .. "/start.safetensors"
    local expected = programs.dump(oracle, { "--cycles", cycles, "--save-init", start })
    local known = devices.losses(programs, oracle, { "--cycles", cycles })
    for seed = 1, 3 do
        local env = environment(devices.checked(seed))
        local found = programs.dump(device, { "--cycles", cycles, "--init", start, env = env })
        programs.close(found, expected, bound, { "parameters", "gradients", "state" })
        for i, loss in ipairs(devices.losses(programs, device, { "--cycles", cycles, env = env })) do
            t.near(loss, known[i], math.max(bound, 1e-8) * math.abs(known[i]))
        end
    end
end

return devices
