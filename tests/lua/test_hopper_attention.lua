-- Attention for sm_90a (templates/cuda/hopper_attention.cu) on the device library, which has its instructions by the
-- rules of PTX. GAGEN_TWINS=all takes each twin that compares right with the kernel of sm_80.
local devices = dofile "tests/lua/devices.lua"
local attended = dofile "tests/lua/attended.lua"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- The part of a number by which a rounding changes it at most.
local U = { bf16 = 2.0 ^ -8, f16 = 2.0 ^ -11 }

-- Forms of attention, of three rows: blocks have up to nine tiles and 36 slices, nine rings; heads of one panel and two;
-- ends of queries and keys inside of a tile; keys that no query sees, queries that see all, keys hidden in some rows and
-- all keys hidden (row 3).
local CASES = {
    { "causal, in one tensor", T = 300, heads = 3, d = 64, packed = true, causal = true },
    { "grouped, more keys", T = 70, S = 290, heads = 2, kv_heads = 1, d = 128 },
    { "masked, dropout", T = 132, heads = 2, kv_heads = 1, d = 64, causal = true, mask = true, dropout = 0.2 },
    { "causal, fewer keys", T = 260, S = 65, heads = 1, d = 64, causal = true },
    { "masked, whole tiles", T = 128, S = 256, heads = 1, d = 64, mask = true },
    { "largest heads", T = 129, heads = 1, d = 128, causal = true, dropout = 0.3 },
}

-- Shapes without a twin: other heads, few queries, few keys, a mask whose rows are no whole chunks.
local OTHERS = {
    { "other heads", T = 128, heads = 1, d = 96 }, { "few queries", T = 63, S = 128, heads = 1, d = 64 },
    { "few keys", T = 128, S = 63, heads = 1, d = 64 }, { "odd mask", T = 65, heads = 1, d = 64, mask = true },
}

local function build(t, programs, name, cases, precision, target)
    return attended.build(t, programs, "hopper_attention_" .. name, cases, precision, '"' .. target .. '"',
        target == "cuda" and { "--dev", devices.small_twins(t, programs) } or nil)
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

for _, precision in ipairs { "bf16", "f16" } do
    add(precision .. ": every form, by twins alone, is that of the C target and of sm_80", function(t)
        devices.needs_arch(t, 90)
        local programs, environment = devices.open(t)
        local cases = (t.all or precision == "bf16") and CASES or { CASES[3], CASES[6] }
        local p = build(t, programs, "forms", cases, precision, "cuda")
        t.equal(twins(p), #cases)
        local found = run(t, programs, p, environment(devices.forced(devices.checked(1))))
        local oracle = programs.dump(build(t, programs, "forms", cases, precision, "c"), { "--cycles", 1 })
        programs.close(found, oracle, 4 * U[precision], { "gradients" }, programs.distance)
        local other = run(t, programs, p, environment { "GAGEN_TWINS=none" })
        programs.close(found, other, 4 * U[precision], { "gradients" }, programs.distance)
    end)
end

return tests
