-- devices: runs programs of the CUDA target in tests: on GPUs if GAGEN_GPU_CHECK is their number, else on the
-- device library of tests/device.
local json = dofile "tests/lua/json.lua"

local devices = {}

--- How many GPUs the tests are to use; 0: the device library.
function devices.gpus(t) return tonumber(t.environment("GAGEN_GPU_CHECK") or "0") end

--- Skips a test that needs a device of this compute capability; the device library has any.
function devices.needs_arch(t, arch)
    if devices.gpus(t) > 0 and t.environment "GAGEN_GPU_ARCH" ~= tostring(arch) then
        t.not_run(("needs a GPU of sm_%d"):format(arch))
    end
end

--- Skips a test that needs the device library.
function devices.needs_library(t)
    if devices.gpus(t) > 0 then t.not_run("needs the device library") end
end

--- Tools of a test: the programs, the folder of the device library, the environment of a run.
function devices.open(t)
    local programs = t.load("tests/lua/programs.lua")(t)
    if devices.gpus(t) > 0 then
        return programs, function(settings)
            local env = { "GAGEN_TIMEOUT=300" }
            for _, setting in ipairs(settings or {}) do
                if not setting:find "^GAGEN_DEVICE_" then env[#env + 1] = setting end
            end
            return env
        end, t.root .. "/" .. t.build
    end
    local build = t.root .. "/" .. t.build
    local library = build .. "/device/lib"
    local stamp = t.kept("device library", function()
        return host.sha256(assert(host.read(library .. "/libdevice.so"), "make device")
            .. host.read(library .. "/shim.h") .. host.read(library .. "/ptx.h")):sub(1, 16)
    end)
    local function environment(settings)
        local env = { "GAGEN_TIMEOUT=300", "GAGEN_KERNEL_PARTS=1", "GAGEN_DEPENDENT=1", "LD_LIBRARY_PATH=" .. library }
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

--- Settings of the device library: its checks, and a random order, by this seed, of all unordered operations.
function devices.checked(seed)
    return { "GAGEN_DEVICE_CHECK=1", "GAGEN_DEVICE_LAZY=1", "GAGEN_DEVICE_SEED=" .. seed }
end

--- The same random order without the checks, whose run is several times as fast.
function devices.ordered(seed)
    return { "GAGEN_DEVICE_LAZY=1", "GAGEN_DEVICE_SEED=" .. seed }
end

--- Settings of a run in which each twin is taken that compares right.
function devices.forced(settings)
    local list = { "GAGEN_TWINS=all" }
    return table.move(settings or {}, 1, #(settings or {}), 2, list)
end

-- A copy of gagen's scripts of this name with changes: { file, text, text in its place }, each text once there.
local function changed_scripts(t, programs, name, changes)
    local dev = ("%s/%s/%s"):format(t.root, programs.folder(), name)
    t.shell(("rm -rf %s; mkdir %s; cp -r gen templates runtime %s"):format(dev, dev, dev))
    for _, change in ipairs(changes) do
        local file, before, behind = table.unpack(change)
        local text = host.read(dev .. "/" .. file)
        local from, to = text:find(before, 1, true)
        assert(from and not text:find(before, to, true), before)
        t.write(dev .. "/" .. file, text:sub(1, from - 1) .. behind .. text:sub(to + 1))
    end
    return dev
end

--- A copy of gagen's scripts in which all kernels that may have twins have them, of at most `blocks` (4) blocks.
function devices.small_twins(t, programs, blocks)
    blocks = blocks or 4
    local file = "gen/emit/targets/cuda/hopper.lua"
    return changed_scripts(t, programs, "hopper_dev_" .. blocks, { { file, "local LEAST = 1e9", "local LEAST = 1" },
        { file, "PARTS_COST = launches.MULTIPROCESSORS, 32", ("PARTS_COST = %d, 1"):format(blocks) } })
end

--- A copy of gagen's scripts for which a grid has at most so many blocks where threads go on behind its end.
function devices.small_grids(t, programs, blocks)
    local folder = "gen/emit/targets/cuda/"
    return changed_scripts(t, programs, "grids_dev_" .. blocks, {
        { folder .. "launches.lua", "BLOCKS_MAX = 65535", "BLOCKS_MAX = " .. blocks },
        { folder .. "step.lua", "blocks < 65535 ? (unsigned)blocks : 65535",
            ("blocks < %d ? (unsigned)blocks : %d"):format(blocks, blocks) } })
end

--- Those of checked() with make test-all, else those of ordered(): for runs of kernels which another test has checked.
function devices.light(t, seed) return t.all and devices.checked(seed) or devices.ordered(seed) end

-- The folder of the dump of a run with these options, the losses of its updates, and what its evaluations say.
local function trained(t, programs, p, o)
    local folder, losses = t.temp(), {}
    table.move({ "--dump", folder }, 1, 2, #o + 1, o)
    for _, event in ipairs(programs.events(p, o)) do
        for _, name in ipairs { "loss", "accuracy", "top5" } do
            if event.event == "update" or event.event == "eval" then losses[#losses + 1] = event[name] end
        end
    end
    return folder, losses
end

--- The full check of one program: five cycles, three random orders.
devices.FULL = { cycles = 5, orders = 3 }

--- A check of a program whose kernels another one has too: devices.light().
devices.LIGHT = { light = true }

--- Losses and tensors of the spec `text` on the device library must be those of the C target within `bound`. how:
--- cycles (2), orders (1, with make test-all 2): the first from the values that the program draws, the others from
--- those of a file; light. Returns the folder of the last dump.
function devices.same_as_c(t, name, text, bound, how)
    local cycles, orders = how and how.cycles or 2, how and how.orders or t.all and 2 or 1
    local programs, environment = devices.open(t)
    local oracle = programs.build(name .. "_c", text)
    local device = programs.build(name .. "_cuda", text .. 'target "cuda"\n')
    local start = t.temp() .. "/start.safetensors"
    local expected, known = trained(t, programs, oracle, { "--cycles", cycles, "--save-init", start })
    local found, losses
    for seed = 1, orders do
        local settings = how and how.light and devices.light(t, seed) or devices.checked(seed)
        local options = { "--cycles", cycles, env = environment(settings) }
        if seed > 1 then table.move({ "--init", start }, 1, 2, #options + 1, options) end
        found, losses = trained(t, programs, device, options)
        programs.close(found, expected, bound, { "parameters", "gradients", "state" })
        t.equal(#losses, #known)
        for i, loss in ipairs(losses) do t.near(loss, known[i], math.max(bound, 1e-8) * math.abs(known[i])) end
    end
    return found
end

-- Left out of the text where the environment has its number: so that a text with all of them is compiled once.
local SWITCH = [[
extern "C" char *getenv(const char *);
extern "C" int atoi(const char *);
static int left_out() { const char *number = getenv("LEFT_OUT"); return number ? atoi(number) : 0; }
]]

--- A text of kernels in which each call of the patterns within the parts has a switch, and the calls, each with its line in
--- the text of before. parts: { first byte, last byte }, in their order. LEFT_OUT=n leaves out the n-th.
function devices.switched(text, parts, patterns)
    local calls, pieces, done = {}, { SWITCH }, 0
    local function next_call(at, last)
        local from, to
        for _, pattern in ipairs(patterns) do
            local first, behind = text:find(pattern, at)
            if first and first <= last and (not from or first < from) then from, to = first, behind end
        end
        return from, to
    end
    for _, part in ipairs(parts) do
        local from, to = next_call(part[1], part[2])
        while from do
            local call, _, line = text:sub(from, to), text:sub(1, from):gsub("\n", "")
            calls[#calls + 1] = ("line %d: %s"):format(line + 1, call)
            pieces[#pieces + 1] = ("%sif (left_out() != %d) { %s }"):format(text:sub(done + 1, from - 1), #calls, call)
            done = to
            from, to = next_call(to, part[2])
        end
    end
    pieces[#pieces + 1] = text:sub(done + 1)
    return table.concat(pieces), calls
end

--- t.run's result of one cycle of a program with this text of kernels and these settings.
function devices.edited(t, p, text, settings)
    local programs, environment = devices.open(t)
    local folder = t.temp()
    t.write(folder .. "/kernels.cu", text)
    local env = environment(settings)
    env[#env + 1] = "GAGEN_KERNELS=" .. folder
    return programs.train(p, { "--cycles", 1, env = env, status = false })
end

--- Runs train(text, LEFT_OUT=n) for each call of switched(), unless make test-all runs for the last one of each function:
--- the checker must find what `pattern` describes, and nothing where no call is left out. train: returns t.run's result.
--- Returns the number of calls.
function devices.each_left_out(t, text, parts, patterns, train, pattern)
    local changed, calls = devices.switched(text, parts, patterns)
    local last = {}
    for i, call in ipairs(calls) do last[call:match "[%w_]+<?%d*>?%("] = i end
    for i = 0, #calls do
        local call = calls[i] or "nothing("
        if t.all or i == 0 or last[call:match "[%w_]+<?%d*>?%("] == i then
            local result = train(changed, "LEFT_OUT=" .. i)
            local found = result.status == 3 and result.err:find(pattern)
            if i == 0 and result.status ~= 0 or i > 0 and not found then
                error(("%s left out: status %d\n%s"):format(call, result.status, result.err))
            end
        end
    end
    return #calls
end

--- NOT RUN where the machine has GPUs, but fewer than `ranks`.
function devices.needs_gpus(t, ranks)
    local gpus = devices.gpus(t)
    if gpus > 0 and gpus < ranks then t.not_run(("%d GPU, %d are needed"):format(gpus, ranks)) end
end

--- The events of one kind in a log.
function devices.events_of(log, kind)
    local list = {}
    for _, event in ipairs(json.lines(host.read(log))) do
        if event.event == kind then list[#list + 1] = event end
    end
    return list
end

-- The name of the kernel, in capitals, that a function of launch.c with this body launches, by the table of twins if it
-- has one.
local function launched(launch, body)
    local twin = body:match "launch_chosen%(q, (T_[%w_]+)"
    if twin then body = launch:match("%[" .. twin .. "%] = (%b{})") end
    return body:match "%f[%w]K_([%w_]+)"
end

--- The functions of a program that launch kernels: { name, the kernel's in capitals }.
function devices.launches(p)
    local launch, list = host.read(p.folder .. "/launch.c"), {}
    for name, body in launch:gmatch "\nstatic void ([%w_]+)%(queue (.-\n}\n)" do
        local kernel = launched(launch, body)
        if kernel then list[#list + 1] = { name, kernel } end
    end
    return list
end

--- The text of the kernel that the function `name`_SIZES of a program launches.
function devices.kernel_of(p, name)
    for _, function_of in ipairs(devices.launches(p)) do
        if function_of[1]:find("^" .. name .. "_%d[%dx]*$") then
            for kernel, text in host.read(p.folder .. "/kernels.cu"):gmatch "\nGA_KERNEL%b() ([%w_]+)(%(.-\n}\n)" do
                if kernel:upper() == function_of[2] then return text end
            end
        end
    end
    error("no kernel for " .. name)
end

return devices
