-- The instructions of the kernels of a shipped spec in bf16, as NVRTC compiles them: products use tensor cores and copy
-- beside them, and memory is accessed 16 bytes at a time. `make test` reads PTX, which takes half of the time; `make
-- test-all` reads the module where nvdisasm is found.
local devices = dofile "tests/lua/devices.lua"
local instructions = dofile "tests/lua/instructions.lua"
local shipped = dofile "tests/lua/shipped.lua"

local tests = {}

-- FLOP of a call of a large product.
local LARGE = 1e9

-- The part of all instructions that access global memory, each as often as an update launches its kernel, that may move
-- fewer than 16 bytes: those of products of few outputs, losses, weights put by octets, one number for each row.
local NARROW = 0.1

-- least: large kernels, of each kind; arch: that of `make test`.
local SPECS = {
    { "resnet18_cifar10", data = "cifar-10-batches-bin", options = { "batch=500", "accumulate=4" },
        least = { 25, 5 }, arch = "80" },
    { "gpt2_124m", data = "gpt2tokens", options = {}, least = { 16, 6 }, arch = "80" },
    { "bert_sst2", data = "sst2", options = {}, least = { 11, 3 }, arch = "90a" },
}

-- Kinds of large kernels that have no twin for sm_90a: there, too, they use mma.sync and cp.async.
local WITHOUT_TWIN = { conv2d = true, conv2d_dx = true, conv2d_dw = true }

-- Ends of the names of the kernels of a twin (runtime/device/twins.h).
local TWIN = { "_boxes", "_parts", "_sums", "_totals" }

-- The name of the kernel whose twin has one of this name.
local function name_of(twin)
    for _, last in ipairs(TWIN) do
        if twin:sub(-#last) == last then return twin:sub(1, -#last - 1) end
    end
end

-- The text with the kernels of these names and their twins alone.
local function kernels_of(text, wanted)
    return (text:gsub("\nGA_KERNEL.-\n}\n", function(kernel)
        local name = kernel:gsub("__cluster_dims__%b() ", ""):match "^\nGA_KERNEL%b() ([%w_]+)%("
        return not wanted[name] and not wanted[name_of(name) or ""] and "\n" or nil
    end))
end

-- The kernel that a function of the plan launches.
local function kernel_of(entry) return entry.kernel or entry.fn end

-- The names of kernels and twins; in `make test` those of one of each kind. twins: by the function that launches them.
local function chosen(t, plan, twins)
    local names, kinds = {}, {}
    for _, kernel in ipairs(plan.kernels) do
        local name = kernel_of(kernel)
        local kind = name:gsub("_%d.*", "")
        if t.all or names[name] or not kinds[kind] then
            names[name], kinds[kind] = true, true
            for _, own in ipairs(twins[kernel.fn] or {}) do names[own] = true end
        end
    end
    return names
end

-- The names of twins by the function that launches them: the first part of those of their kernels, and that of sums.
local function twins_of(folder)
    local twins = {}
    for fn, twin, rest in host.read(folder .. "/launch.c"):gmatch '{%.name = "([%w_]+)",%s+%.twin = "([%w_]+)"(.-)%.made' do
        twins[fn] = { twin, rest:match '%.summing = "([%w_]+)"' }
    end
    return twins
end

-- The kernels of a spec, its plan and its twins.
local function compiled(t, spec, arch)
    local programs = shipped.open(t, spec.data)
    local _, _, build = devices.open(t)
    local name, out = spec[1], programs.folder() .. "/instructions_" .. spec[1]
    t.write(programs.folder() .. "/" .. name .. ".lua", (shipped.text(t, name):gsub("\nscaler [^\n]*", "")))
    local command = { programs.folder() .. "/" .. name .. ".lua", "--target", "cuda", "--set", 'precision="bf16"', "-o",
        out, "--force" }
    for _, option in ipairs(spec.options) do table.move({ "--set", option }, 1, 2, #command + 1, command) end
    local result = programs.gagen(command)
    t.equal(result.status, 0, result.err)
    local plan = t.load("tests/lua/json.lua").read(host.read(out .. "/plan.json"))
    local some = t.root .. "/" .. t.temp() .. "/kernels.cu"
    local twins = twins_of(out)
    t.write(some, kernels_of(host.read(out .. "/kernels.cu"), chosen(t, plan, twins)))
    return instructions.compiled(t, build .. "/device/nvrtc_check", some, arch, t.all), plan, twins
end

-- The kernels that a call launches, by name: those of the twin, where there is one.
local function launched(kernels, name, twin)
    local list = {}
    for _, own in ipairs(twin or {}) do
        for _, last in ipairs(TWIN) do list[own .. last] = kernels[own .. last] end
    end
    return next(list) and list or { [name] = kernels[name] }
end

-- A large kernel, or its twin, has products on tensor cores and copies that run beside them.
local function check_large(t, kernel, own, twin, arch)
    twin = twin and own[twin[1] .. "_boxes"]
    local product = twin or own[kernel_of(kernel)]
    assert(twin or arch == "80" or WITHOUT_TWIN[kernel.kind], kernel.fn .. " has no twin for sm_90a")
    assert(product[twin and "wgmma" or "mma"] > 0, kernel.fn .. " has no product on tensor cores")
    assert(product[twin and "boxes" or "async"] > 0, kernel.fn .. " has no copy beside its products")
    for name, found in next, own do
        t.equal(found.looped, 0, name .. ": loads of fewer than 16 bytes in its loops")
    end
end

local function check(t, spec, arch)
    local kernels, plan, twins = compiled(t, spec, arch)
    local large, wide, narrow = 0, 0, 0
    for _, kernel in ipairs(plan.kernels) do
        local name = kernel_of(kernel)
        local twin = twins[kernel.fn]
        local own = kernels[name] and launched(kernels, name, twin) or {}
        if next(own) and kernel.flops >= LARGE and kernel.role ~= "boundary" then
            large = large + 1
            check_large(t, kernel, own, twin, arch)
        end
        for part, found in next, own do
            t.equal(arch == "90a" and found.early or 0, 0, part .. ": global memory before the wait for the kernel in front")
            wide, narrow = wide + kernel.calls * found.wide, narrow + kernel.calls * found.narrow
        end
    end
    assert(large >= spec.least[t.all and 1 or 2], large)
    local part = narrow / (wide + narrow)
    assert(not t.all or part <= NARROW, ("%.3f of the instructions are below 16 bytes"):format(part))
end

for _, spec in ipairs(SPECS) do
    tests[#tests + 1] = { spec[1] .. " in bf16: large products on tensor cores, 16 bytes at a time", function(t)
        for _, arch in ipairs { "80", "90a" } do
            if t.all or arch == spec.arch then check(t, spec, arch) end
        end
    end }
end

return tests
