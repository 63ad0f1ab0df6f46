-- Attention on tensor cores (templates/cuda/attention_tensor.cu) on the device library, which runs its instructions as
-- PTX describes them; its copies land as late as they may.
local devices = dofile "tests/lua/devices.lua"
local open, checked = devices.open, devices.checked
local attended = dofile "tests/lua/attended.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- The part of a number by which a rounding changes it at most.
local U = { bf16 = 2.0 ^ -8, f16 = 2.0 ^ -11 }

-- Forms of attention: all positions are of more than one tile, those of the first two of more than two rings; heads are
-- padded (40, 72), whole (16) and the largest (128); 96 blocks take the tall tile. Keys that no query sees, queries that
-- see all, keys hidden in some rows and all keys hidden (row 3).
local CASES = {
    { "causal, in one tensor", T = 140, heads = 1, d = 40, packed = true, causal = true },
    { "many keys", T = 40, S = 290, heads = 1, d = 16 },
    { "grouped, more keys", T = 40, S = 140, heads = 2, kv_heads = 1, d = 72 },
    { "masked, dropout", T = 68, heads = 2, kv_heads = 1, d = 16, causal = true, mask = true, dropout = 0.2 },
    { "masked, dropout, other keys", T = 40, S = 70, heads = 2, d = 24, mask = true, dropout = 0.3 },
    { "causal, more keys", T = 40, S = 150, heads = 2, d = 16, causal = true },
    { "causal, fewer keys", T = 150, S = 40, heads = 1, d = 16, causal = true },
    { "tall", T = 66, heads = 32, kv_heads = 16, d = 16, causal = true },
    { "largest heads", T = 40, heads = 1, d = 128, causal = true },
}

-- One of each kind of tile, those that need the most registers, for what `make test` has of f16 and, in bf16, of NVRTC.
local FEW = { CASES[4], CASES[8], CASES[9] }

-- Shapes that keep the kernel by threads: few queries, few keys, odd, small and large heads.
local OTHERS = {
    { "few queries", T = 31, S = 40, heads = 1, d = 16 }, { "few keys", T = 40, S = 31, heads = 1, d = 16 },
    { "odd heads", T = 40, heads = 1, d = 20 }, { "small heads", T = 40, heads = 2, d = 8 },
    { "large heads", T = 40, heads = 1, d = 136 },
}

-- Builds a model whose logits are a sum over the cases.
local function build(t, programs, name, cases, precision, target)
    return attended.build(t, programs, "attention_" .. name, cases, precision, target)
end

-- How many kernels of attention a text has on tensor cores, and by threads.
local function forms(text)
    local tensor, threads = 0, 0
    for head in text:gmatch "\n/%* attend[%d_dx]+: ([^\n]*)" do
        if head:find("on tensor cores", 1, true) then tensor = tensor + 1 else threads = threads + 1 end
    end
    return tensor, threads
end

-- The gradients of q, k and v are those of the C target, by the weights that make them, and y is by those of `out`.
-- Differences of up to 1.6 U were found, of sums that cancel (biases) up to 2.8 U.
for _, precision in ipairs { "bf16", "f16" } do
    add(precision .. ": every form is that of the C target", function(t)
        local programs, environment = open(t)
        local cases = (t.all or precision == "bf16") and CASES or FEW
        local device = build(t, programs, "forms", cases, precision, '"cuda"')
        local oracle = build(t, programs, "forms", cases, precision, '"c"')
        local settings = precision == "bf16" and devices.light(t, 1) or checked(1)
        local found = programs.dump(device, { "--cycles", 1, env = environment(settings) })
        programs.close(found, programs.dump(oracle, { "--cycles", 1 }), 4 * U[precision], { "gradients" },
            programs.distance)
        local tensor, threads = forms(host.read(device.folder .. "/kernels.cu"))
        t.equal(tensor, 2 * #cases)
        t.equal(threads, 0)
    end)
end

add("shapes that keep the kernel by threads", function(t)
    local programs = open(t)
    local tensor, threads = forms(host.read(build(t, programs, "others", OTHERS, "bf16", '"cuda"').folder
        .. "/kernels.cu"))
    t.equal(tensor, 0)
    t.equal(threads, 2 * #OTHERS)
    for precision, target in pairs { f32 = '"cuda"', bf16 = '{ "cuda", arch = 75 }' } do
        local p = build(t, programs, "one", { CASES[1] }, precision, target)
        tensor, threads = forms(host.read(p.folder .. "/kernels.cu"))
        t.equal(tensor, 0)
        t.equal(threads, 2)
    end
end)

-- === orders and mutations ========================================================================

-- Three tiles of keys forward, five of either side backward: each place of a ring is used again.
local SMALL = { { "several tiles", T = 132, heads = 1, d = 16, causal = true, packed = true } }

local function small(t, programs) return build(t, programs, "small", SMALL, "bf16", '"cuda"') end

add("the order of blocks and threads changes no bit", function(t)
    local programs, environment = open(t)
    local p = small(t, programs)
    local function dump(settings) return programs.dump(p, { "--cycles", 1, env = environment(settings) }) end
    local expected = dump()
    for seed = 2, t.all and 3 or 2 do programs.identical(dump(checked(seed)), expected, { "parameters", "gradients" }) end
end)

-- The parts of a text of kernels that are attention on tensor cores.
local function parts_of(text)
    local list = {}
    for _, name in ipairs { "attend", "attend_dx" } do
        local from = text:find("\nGA_KERNEL%(128, %d%) " .. name .. "_%d")
        list[#list + 1] = { from, text:find("\n}", from, true) }
    end
    return list
end

add("found: each barrier, wait and commit of attention left out", function(t)
    devices.needs_library(t)
    local p = small(t, open(t))
    local text = host.read(p.folder .. "/kernels.cu")
    local calls = { "ga_copy_commit%(%);", "ga_copy_wait<0>%(%);", "__syncthreads%(%);" }
    local count = devices.each_left_out(t, text, parts_of(text), calls, function(changed, switch)
        local settings = checked(1)
        settings[#settings + 1] = switch
        return devices.edited(t, p, changed, settings)
    end, "device: [ru]")
    t.equal(count, 15)
end)

-- === compilers ===================================================================================

add("NVRTC compiles every form for sm_80 and sm_90a without spills", function(t)
    local programs, _, build_folder = open(t)
    for _, precision in ipairs { "bf16", t.all and "f16" or nil } do
        local cases = t.all and CASES or FEW
        local p = build(t, programs, t.all and "forms" or "few", cases, precision, '"cuda"')
        for _, arch in ipairs { "80", t.all and "90a" or nil } do
            local result = t.run { build_folder .. "/device/nvrtc_check", p.folder .. "/kernels.cu", arch }
            if result.status == 77 then t.not_run("no libnvrtc here") end
            local count = 0
            for line in result.out:gmatch "[^\n]+" do
                if line:find("attend", 1, true) then
                    t.match(line, " 0 bytes spilled")
                    count = count + 1
                end
            end
            assert(count >= 2 * #cases, result.out .. result.err)
        end
    end
end)

return tests
