-- Profiles of processors (--march): which one "native" is, and programs of each.
local profile = require "emit.program.profile"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- The features of these processors that profiles ask for.
local AVX2 = { "avx2", "fma", "bmi2" }
local AVX512 = { "avx2", "fma", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl" }
local function with(list, ...) return table.move({ ... }, 1, select("#", ...), #list + 1, table.move(list, 1, #list, 1, {})) end

add("native is the profile with the most instructions of the processor", function(t)
    for _, case in ipairs {
        { "generic", { "sse4.2" } }, { "x86-64-v3", AVX2 }, { "x86-64-v4", AVX512 }, { "aarch64", { "aarch64" } },
        { "x86-64-v4-bf16", with(AVX512, "avx512bf16") },
        { "x86-64-v4-bf16", with(AVX512, "avx512bf16", "amx-tile") },
        { "sapphirerapids", with(AVX512, "avx512bf16", "amx-tile", "amx-bf16") },
        { "x86-64-v4", with(AVX512, "amx-tile", "amx-bf16") },
    } do
        t.equal(profile.native(case[2]), case[1], table.concat(case[2], " "))
    end
    assert(not profile.runs("x86-64-v3", { "aarch64" }) and not profile.runs("aarch64", AVX512))
    assert(profile.runs("generic", { "aarch64" }) and profile.runs("x86-64-v3", AVX512))
end)

return tests
