-- How kernels of transformers access global memory, by their PTX as NVRTC writes it: products and attention copy 16 bytes
-- at a time beside the instructions of tensor cores.
local devices = dofile "tests/lua/devices.lua"
local ptx = dofile "tests/lua/ptx.lua"
local shipped = dofile "tests/lua/shipped.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- The kernels of a shipped spec in bf16 as PTX, and those of its plan, by name.
local function kernels_of(t, name, folder)
    local programs = shipped.open(t, folder)
    local spec, out = programs.folder() .. "/" .. name .. ".lua", programs.folder() .. "/accesses_" .. name
    t.write(spec, (shipped.text(t, name):gsub("\nscaler [^\n]*", "")))
    local result = programs.gagen { spec, "--target", "cuda", "--set", 'precision="bf16"', "-o", out, "--force" }
    t.equal(result.status, 0, result.err)
    local _, _, build = devices.open(t)
    local compiled = t.run { build .. "/device/nvrtc_check", "--ptx", out .. "/kernels.cu", "80" }
    if compiled.status == 77 then t.not_run("no libnvrtc here") end
    t.equal(compiled.status, 0, compiled.err)
    return ptx.kernels(compiled.out), t.load("tests/lua/json.lua").read(host.read(out .. "/plan.json")).kernels
end

-- Of the instructions that access global memory, at most so many of 100 are below 16 bytes. The goal is 10: what is left
-- are kernels of a few numbers (decide, tally, hits), ends of ranges and rows that are no whole 16 bytes, and, for
-- gpt2_124m, those of 50257 logits.
local NARROW = { gpt2_124m = 33, bert_sst2 = 47 }

-- Kernels with loads below 16 bytes in a loop: rows of 50257 logits are no whole 16 bytes; the gradient of attention reads
-- two numbers of a query for its rows of scores.
local LOOPED = {
    gpt2_124m = "linear_dx_4096x768x50257 linear_dw_50257x768x4096 attend_dx_4x1024x2304",
    bert_sst2 = "attend_dx_16x64x2304",
}

for _, spec in ipairs(shipped.list) do
    local name, most = spec[1], NARROW[spec[1]]
    if most then
        add(name .. " in bf16: large products and attention read 16 bytes at a time on tensor cores", function(t)
            local found, planned = kernels_of(t, name, spec[2])
            local narrow, wide, products, looped = 0, 0, 0, {}
            for _, kernel in next, found do narrow, wide = narrow + kernel.narrow, wide + kernel.wide end
            for _, kernel in ipairs(planned) do
                local is_product = kernel.fn:find "^linear" or kernel.fn:find "^attend_%d" or kernel.fn:find "^attend_dx"
                if is_product and (kernel.flops > 1e9 or kernel.fn:find "^attend") then
                    local own = found[kernel.fn]
                    assert(own.has["mma.sync"] and own.has["cp.async"], kernel.fn)
                    if own.looped > 0 then looped[#looped + 1] = kernel.fn end
                    products = products + 1
                end
            end
            assert(products >= 10, products)
            t.equal(table.concat(looped, " "), LOOPED[name])
            assert(100 * narrow <= most * (narrow + wide), ("%d of %d accesses are below 16 bytes"):format(narrow,
                narrow + wide))
        end)
    end
end

return tests
