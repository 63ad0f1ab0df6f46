-- Attention for sm_90a (templates/cuda/hopper_attention.cu) on the device library, which has its instructions by the
-- rules of PTX. GAGEN_TWINS=all takes each twin that compares right with the kernel of sm_80.
local devices = dofile "tests/lua/devices.lua"
local attended = dofile "tests/lua/attended.lua"
local traffic = dofile "tests/lua/traffic.lua"
local instructions = dofile "tests/lua/instructions.lua"
local ordered = require "base.ordered"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- The part of a number by which a rounding changes it at most.
local U = { bf16 = 2.0 ^ -8, f16 = 2.0 ^ -11 }

-- Forms of attention, of three rows, that one block computes: in the first it has six tiles and 18 slices, over four
-- rings. Heads of one panel and two; ends of queries and keys inside of a tile; keys that no query sees, queries that see
-- all, keys hidden in some rows and all keys hidden (row 3). Of whole heads one walk computes all gradients.
local CASES = {
    { "causal, in one tensor", T = 140, heads = 1, d = 64, packed = true, causal = true },
    { "masked, dropout", T = 68, heads = 2, kv_heads = 1, d = 64, causal = true, mask = true, dropout = 0.2 },
    { "grouped, large heads", T = 64, S = 130, heads = 2, kv_heads = 1, d = 128 },
    { "causal, fewer keys", T = 130, S = 65, heads = 1, d = 64, causal = true },
    { "masked, other keys", T = 64, S = 132, heads = 1, d = 64, mask = true },
    { "large heads, causal", T = 65, heads = 1, d = 128, causal = true, packed = true },
}
local WHOLE_CASES = {
    { "whole, masked, dropout", T = 100, S = 72, heads = 2, d = 64, mask = true, dropout = 0.2 },
    { "whole, causal, in one tensor", T = 128, heads = 1, d = 64, packed = true, causal = true },
    { "whole, causal, more queries", T = 128, S = 64, heads = 1, d = 64, causal = true },
}

-- Those of `make test`, or all. Logits of a program are a sum over its forms, each rounded, so whole heads have a program
-- of their own.
local function forms(t) return t.all and CASES or { CASES[1], CASES[2], CASES[3] } end
local function whole_forms(t) return t.all and WHOLE_CASES or { WHOLE_CASES[1] } end
local function some(t)
    local list = table.move(forms(t), 1, #forms(t), 1, {})
    return table.move(whole_forms(t), 1, #whole_forms(t), #list + 1, list)
end

local function build(t, programs, name, cases, precision, target, blocks)
    return attended.build(t, programs, "hopper_attention_" .. name, cases, precision, '"' .. target .. '"',
        target == "cuda" and { "--dev", devices.small_twins(t, programs, blocks or 1) } or nil, true)
end

-- A run's folder of dumps; no twin of it may be refused.
local function run(t, programs, p, env)
    local folder = t.temp()
    local result = programs.train(p, { "--cycles", 1, "--dump", folder, env = env })
    assert(not result.err:find("sm_90a", 1, true), result.err)
    return folder
end

-- Twins of attention in a program's table.
local function twins(p)
    return select(2, host.read(p.folder .. "/launch.c"):gsub('= {%.name = "attend', ""))
end

-- Each twin of the forward pass reads its operands and writes its results once: the bytes of the plan within 5 %. path:
-- of the counts of a run. Returns their number.
local function check_bytes(t, p, path)
    local counted, compared = traffic.launches(path), 0
    for _, kernel in ipairs(t.load("tests/lua/json.lua").read(host.read(p.folder .. "/plan.json")).kernels) do
        local launches = kernel.fn:find "^attend_%d" and counted[kernel.fn .. "_boxes"]
        if launches then
            t.near(launches[#launches].moved, kernel.bytes, 0.05 * kernel.bytes)
            compared = compared + 1
        end
    end
    return compared
end

-- === results =====================================================================================

-- Whether the gradients of these forms are those of the C target, and the bytes those of the plan.
local function check_forms(t, name, cases, precision)
    local programs, environment = devices.open(t)
    local p = build(t, programs, name, cases, precision, "cuda")
    t.equal(twins(p), 2 * #cases)                             -- of the gradients, too
    local path, env = t.root .. "/" .. t.temp() .. "/traffic", environment(devices.forced(devices.checked(1)))
    env[#env + 1] = "GAGEN_DEVICE_TRAFFIC=" .. path
    local found = run(t, programs, p, env)
    local oracle = programs.dump(build(t, programs, name, cases, precision, "c"), { "--cycles", 1 })
    programs.close(found, oracle, 4 * U[precision], { "gradients" }, programs.distance)
    if devices.gpus(t) == 0 then t.equal(check_bytes(t, p, path), #cases) end
end

for _, precision in ipairs { "bf16", "f16" } do
    for name, cases in ordered.each { forms = forms, whole_forms = whole_forms } do
        add(("%s: %s, by twins alone, are those of the C target; bytes are the plan's"):format(precision, name), function(t)
            if precision == "f16" then t.long() end
            devices.needs_arch(t, 90)
            check_forms(t, name, cases(t), precision)
        end)
    end
end

-- A block has nine tiles of two steps, 36 slices; of the gradient six tiles of six steps and nine of three, 63 slices.
-- A walk of six goes once around the ring.
local SMALL = { { "several tiles", T = 66, S = 130, heads = 3, kv_heads = 1, d = 64 } }
-- A block has three heads of two steps.
local WHOLE = { { "whole heads", T = 100, S = 72, heads = 1, d = 64 } }
-- Six tiles, of which five blocks have up to two; whole heads.
local TILES = { { "six tiles", T = 130, S = 130, heads = 1, d = 64 },
    { "whole heads", T = 100, S = 72, heads = 2, d = 64 } }

add("the order of threads, copies and blocks, and their number, change no bit", function(t)
    devices.needs_arch(t, 90)
    local programs, environment = devices.open(t)
    local one = build(t, programs, "tiles", TILES, "bf16", "cuda")
    local expected = run(t, programs, one, environment(devices.forced()))
    local several = build(t, programs, "blocks", TILES, "bf16", "cuda", 5)
    t.contains(host.read(several.folder .. "/launch.c"), ".own_blocks = 5,")
    programs.identical(run(t, programs, several, environment(devices.forced())), expected, { "gradients" })
    for seed = t.all and 1 or 2, t.all and 3 or 2 do
        programs.identical(run(t, programs, one, environment(devices.forced(devices.checked(seed)))), expected,
            { "gradients" })
    end
end)

-- === each wait, arrival, fence and barrier is needed ==============================================

local CALLS = { "ga_gate_init%b();", "ga_gates_ready%(%);", "ga_gate_wait%b();", "ga_gate_expect%b();",
    "if %([^\n]-%) ga_gate_arrive%b();", "ga_threads_wait<%d, %d+>%(%);", "ga_group_begin%(%);", "ga_group_commit%(%);", "ga_group_wait<%w>%(%);",
    "__syncthreads%(%);", "__syncwarp%(%);" }

-- The part of a text from the first pattern to the text behind it.
local function part(text, first, last)
    local from = assert(text:find(first))
    return { from, (assert(text:find(last, from, true))) }
end

-- The parts that are the functions of hopper_attention.cu and the twins; of whole heads what is theirs alone.
local PARTS = {
    small = function(text)
        return { part(text, "template <int D, int KEPT> GA_DEVICE ga_head_memory", "GA_DEVICE void ga_mask_bits"),
            part(text, "struct ga_walk {", "GA_KERNEL"), part(text, "\nGA_KERNEL%(384, 1%) attend_%d[%w_]+_boxes", "\n}"),
            part(text, "\nGA_KERNEL%(384, 1%) attend_dx_[%w_]+_boxes", "\n}") }
    end,
    whole = function(text)
        return { part(text, "GA_DEVICE void ga_whole_keep", "GA_KERNEL"),
            part(text, "\nGA_KERNEL%(384, 1%) attend_dx_[%w_]+_boxes", "\n}") }
    end,
}
local PROGRAMS = { small = SMALL, whole = WHOLE }

-- The small program of this name.
local function built(t, name) return build(t, devices.open(t), name, PROGRAMS[name], "bf16", "cuda") end

-- A run of it with this text of kernels and these settings.
local function edited(t, name, text, settings) return devices.edited(t, built(t, name), text, settings) end

for name, calls in ordered.each { small = 36, whole = 6 } do
    add("found: each wait, arrival, fence, commit and barrier left out: " .. name, function(t)
        devices.needs_library(t)
        local text = host.read(built(t, name).folder .. "/kernels.cu")
        local count = devices.each_left_out(t, text, PARTS[name](text), CALLS, function(changed, switch)
            local settings = devices.forced(devices.checked(1))
            settings[#settings + 1] = switch
            return edited(t, name, changed, settings)
        end, "device: [bdmruw]")
        t.equal(count, calls)
    end)
end

add("a twin with wrong weights, scores or rows is not taken", function(t)
    devices.needs_library(t)
    local text = host.read(built(t, "small").folder .. "/kernels.cu")
    local changes = { { "pair(weight[k][0], weight[k][1])", "pair(weight[k][1], weight[k][0])" },
        { "(score, x + step, y + step);", "(score, x + step, y);" } }
    for i = 1, t.all and #changes or 1 do
        local change = changes[i]
        local from, to = assert(text:find(change[1], 1, true))
        local result = edited(t, "small", text:sub(1, from - 1) .. change[2] .. text:sub(to + 1), devices.forced())
        t.equal(result.status, 0)
        t.match(result.err, "attend[%w_]+: %d+ results of its kernel for sm_90a are wrong, mma%.sync computes it")
    end
end)

-- === compilers and plan ===================================================================================

-- A text with all functions, and of kernels the twins alone whose names fit.
local function twins_alone(text, pattern)
    local out, done = {}, 0
    for at, name in text:gmatch "\n()GA_KERNEL%([^)]*%) ([%w_]+)%(" do
        if not name:find(pattern) then
            out[#out + 1] = text:sub(done + 1, at - 1)
            done = select(2, assert(text:find("\n}\n", at, true)))
        end
    end
    return table.concat(out) .. text:sub(done + 1)
end

-- `make test` compiles the gradients, which need more registers.
add("NVRTC compiles every form for sm_90a without spills, by boxes and products of warpgroups", function(t)
    local programs, _, build_folder = devices.open(t)
    local pattern = t.all and "^attend[%w_]*_boxes$" or "^attend_dx[%w_]*_boxes$"
    local folder = t.temp()
    for _, precision in ipairs { "bf16", t.all and "f16" or nil } do
        local p = build(t, programs, "all", some(t), precision, "cuda")
        local path = t.root .. "/" .. folder .. "/kernels.cu"
        t.write(folder .. "/kernels.cu", twins_alone(host.read(p.folder .. "/kernels.cu"), pattern))
        local checked = t.run { build_folder .. "/device/nvrtc_check", path, "90a" }
        if checked.status == 77 then t.not_run("no libnvrtc here") end
        t.equal(checked.status, 0, checked.err)               -- nor are products serialized
        local listed = t.run { build_folder .. "/device/nvrtc_check", "--ptx", path, "90a" }
        local count = 0
        for name, kernel in pairs(instructions.of_ptx(listed.out)) do
            count = count + 1
            t.match(checked.out, name .. " +168 registers +0 bytes shared +0 bytes stack +0 bytes spilled")
            assert(kernel.wgmma > 0 and kernel.boxes > 0, name)
            local queries = name:match "^attend_dx_%d+x(%d+)x"    -- odd ones are read one by one
            if not queries or queries % 4 == 0 then
                t.equal(kernel.looped, 0, name .. ": loads of fewer than 16 bytes in its loops")
            end
        end
        t.equal(count, (t.all and 2 or 1) * #some(t))
    end
end)

-- Large shapes: one with a twin, then others: other heads, few queries, few keys, a mask whose rows are no whole
-- chunks, large heads with draws.
local LARGE = { { "a twin", T = 1024, heads = 7, d = 64, causal = true }, { "other heads", T = 1024, heads = 8, d = 96 },
    { "few queries", T = 63, S = 4096, heads = 16, d = 64 }, { "few keys", T = 4096, S = 63, heads = 16, d = 64 },
    { "odd mask", T = 1025, heads = 8, d = 64, mask = true },
    { "draws", T = 1024, heads = 4, d = 128, dropout = 0.1 } }

local RATES = { attend = { twin = 235e12, other = 300e12 }, attend_dx = { twin = 202e12, other = 150e12 } }

add("the plan predicts attention and its gradient with a twin by the rate of the twin", function(t)
    local programs = devices.open(t)
    local spec = attended.write(t, programs, "hopper_attention_plan", LARGE, "bf16", '"cuda"', true)
    local count = 0
    for _, kernel in ipairs(programs.plan({ spec = spec }).kernels) do
        local op, shape = kernel.fn:match "^(attend[_dx]*)_(%d+x%d+x%d+)"
        if op then
            count = count + 1
            local rate = RATES[op][shape == "3x1024x448" and "twin" or "other"]
            t.near(kernel.predicted_us, math.max(kernel.flops / rate, kernel.bytes / 3.7e12) * 1e6, 1e-9)
        end
    end
    t.equal(count, 2 * #LARGE)
end)

return tests
