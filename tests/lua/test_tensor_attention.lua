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

-- One of each kind of tile, those that need the most registers, for what `make test` has of f16 and of NVRTC.
local FEW = { CASES[4], CASES[8], CASES[9] }

-- Shapes that keep the kernel by threads: few queries, few keys, odd, small and large heads.
local OTHERS = {
    { "few queries", T = 31, S = 40, heads = 1, d = 16 }, { "few keys", T = 40, S = 31, heads = 1, d = 16 },
    { "odd heads", T = 40, heads = 1, d = 20 }, { "small heads", T = 40, heads = 2, d = 8 },
    { "large heads", T = 40, heads = 1, d = 136 },
}

-- Row 1 sees all keys, row 2 some, row 3 none.
local function visible(r, j) return r == 1 or r == 2 and j * j % 5 < 3 end

-- The attention of case i, of linear layers q1, k1, v1, or qkv1.
local function attention(i, o)
    local S, kv_heads = o.S or o.T, o.kv_heads or o.heads
    local width, kv_width = o.heads * o.d, kv_heads * o.d
    local options = ("heads = %d, kv_heads = %d, causal = %s, dropout = %g"):format(o.heads, kv_heads,
        tostring(o.causal or false), o.dropout or 0)
    if o.packed then
        return ('attend { %s } (of("qkv%d", %d, %d))'):format(options, i, o.T, width + 2 * kv_width)
    end
    return ('attend { %s } (of("q%d", %d, %d), of("k%d", %d, %d), of("v%d", %d, %d)%s)'):format(options, i, o.T, width,
        i, S, kv_width, i, S, kv_width, o.mask and ", batch.mask" .. S or "")
end

-- Builds a model whose logits are a sum over the cases.
local function build(t, programs, name, cases, precision, target)
    local outputs, masks = {}, {}
    for i, case in ipairs(cases) do
        outputs[i] = attention(i, case)
        if case.mask then masks[#masks + 1] = { keys = case.S or case.T, visible = visible } end
    end
    local file = "attention_" .. name .. ".safetensors"
    t.write(programs.folder() .. "/data/" .. file, attended.data(t, "F32", masks))
    return programs.build(("attention_%s_%s_%s"):format(name, precision, target:gsub("%W", "")),
        attended.spec(file, outputs, ('precision "%s"\ntrain     { updates = 2, seed = 3 }\ntarget    %s')
            :format(precision, target)))
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
    local programs, environment = open(t)
    local p, folder = small(t, programs), t.temp()
    local text = host.read(p.folder .. "/kernels.cu")
    local calls = { "ga_copy_commit%(%);", "ga_copy_wait<0>%(%);", "__syncthreads%(%);" }
    local count = devices.each_left_out(t, text, parts_of(text), calls, function(changed, switch)
        local env = environment(checked(1))
        t.write(folder .. "/kernels.cu", changed)
        table.move({ switch, "GAGEN_KERNELS=" .. folder }, 1, 2, #env + 1, env)
        return programs.train(p, { "--cycles", 1, env = env, status = false })
    end, "device: [ru]")
    t.equal(count, 15)
end)

-- === compilers ===================================================================================

add("NVRTC compiles every form for sm_80 and sm_90a without spills", function(t)
    local programs, _, build_folder = open(t)
    for i, precision in ipairs { "bf16", "f16" } do
        local cases = t.all and CASES or FEW
        local p = build(t, programs, t.all and "forms" or "few", cases, precision, '"cuda"')
        for _, arch in ipairs(t.all and { "80", "90a" } or { i == 1 and "80" or "90a" }) do
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
