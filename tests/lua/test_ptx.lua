-- The instructions of the kernels of a shipped spec in bf16, as NVRTC compiles them for sm_80: products use tensor cores
-- and copy beside them, and memory is accessed 16 bytes at a time.
local devices = dofile "tests/lua/devices.lua"
local ptx = dofile "tests/lua/ptx.lua"
local shipped = dofile "tests/lua/shipped.lua"

local tests = {}

-- FLOP of a call of a large product.
local LARGE = 1e9

-- The part of all instructions that access global memory that may move fewer than 16 bytes: those of products of few
-- outputs, losses, weights put by octets, one number for each row.
local NARROW = 0.1

-- least: large kernels, of each kind.
local SPECS = {
    { "resnet18_cifar10", data = "cifar-10-batches-bin", options = { "batch=500", "accumulate=4" },
        least = { 25, 5 } },
    { "gpt2_124m", data = "gpt2tokens", options = {}, least = { 16, 6 } },
    { "bert_sst2", data = "sst2", options = {}, least = { 11, 3 } },
}

-- The text with the kernels of these names alone.
local function kernels_of(text, wanted)
    return (text:gsub("GA_KERNEL%b() ([%w_]+)%(.-\n}\n", function(name) return not wanted[name] and "" or nil end))
end

-- The names of kernels; in `make test` one of each kind.
local function chosen(t, plan)
    local names, kinds = {}, {}
    for _, kernel in ipairs(plan.kernels) do
        local name = kernel.kernel or kernel.fn
        local kind = name:gsub("_%d.*", "")
        if t.all or not kinds[kind] then names[name], kinds[kind] = true, true end
    end
    return names
end

-- The kernels of a spec, and its plan.
local function compiled(t, spec)
    local programs = shipped.open(t, spec.data)
    local _, _, build = devices.open(t)
    local name, out = spec[1], programs.folder() .. "/ptx_" .. spec[1]
    t.write(programs.folder() .. "/" .. name .. ".lua", (shipped.text(t, name):gsub("\nscaler [^\n]*", "")))
    local command = { programs.folder() .. "/" .. name .. ".lua", "--target", "cuda", "--set", 'precision="bf16"', "-o",
        out, "--force" }
    for _, option in ipairs(spec.options) do table.move({ "--set", option }, 1, 2, #command + 1, command) end
    local result = programs.gagen(command)
    t.equal(result.status, 0, result.err)
    local plan = t.load("tests/lua/json.lua").read(host.read(out .. "/plan.json"))
    local some = t.root .. "/" .. t.temp() .. "/kernels.cu"
    t.write(some:sub(#t.root + 2), kernels_of(host.read(out .. "/kernels.cu"), chosen(t, plan)))
    result = t.run { build .. "/device/nvrtc_check", "--ptx", some, "80" }
    if result.status == 77 then t.not_run("no libnvrtc here") end
    t.equal(result.status, 0, result.err)
    return ptx.kernels(result.out), plan
end

for _, spec in ipairs(SPECS) do
    tests[#tests + 1] = { spec[1] .. " in bf16: large products on tensor cores, 16 bytes at a time", function(t)
        local kernels, plan = compiled(t, spec)
        local large, wide, narrow, seen = 0, 0, 0, {}
        local function count(kernel)
            wide, narrow, seen[kernel] = wide + kernel.wide, narrow + kernel.narrow, true
        end
        for _, kernel in ipairs(plan.kernels) do
            local found = kernels[kernel.kernel or kernel.fn]
            if found and not seen[kernel.fn] then count(found) end      -- once for each op and shape
            seen[kernel.fn] = true
            if found and kernel.flops >= LARGE and kernel.role ~= "boundary" then
                large = large + 1
                assert(found.has["mma.sync"], kernel.fn .. " has no product on tensor cores")
                assert(found.has["cp.async"], kernel.fn .. " has no copy beside its products")
                t.equal(found.looped, 0, kernel.fn .. ": loads of fewer than 16 bytes in its loops")
            end
        end
        assert(large >= spec.least[t.all and 1 or 2], large)
        for _, kernel in pairs(kernels) do
            if not seen[kernel] then count(kernel) end
        end
        local part = narrow / (wide + narrow)
        assert(not t.all or part <= NARROW, ("%.3f of the instructions are below 16 bytes"):format(part))
    end }
end

return tests
