-- profile: all that gagen knows of a machine. Output depends on the profile's name, never on the
-- machine that generates; "native" is resolved once, by the driver.
local profile = {}

local V3 = { "-mavx2", "-mfma", "-mbmi", "-mbmi2", "-mlzcnt", "-mf16c", "-mmovbe" }
local V4 = { "-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl",
    "-mprefer-vector-width=512" }

local function joined(a, b)
    return table.move(b, 1, #b, #a + 1, table.move(a, 1, #a, 1, {}))
end

-- flops and bytes per second of one core: coarse, only for the predictions of `gagen plan`.
-- vector: what an instruction works on, in bytes; registers: how many of them; fma: which instructions
-- multiply and add at once; panel: bytes of the first cache that a block of a product may take.
local PROFILES = {
    generic = { flags = {}, features = {}, flops = 6e9, bytes = 8e9,
        vector = 16, registers = 16, panel = 16384 },
    ["x86-64-v3"] = { flags = V3, features = { "avx2", "fma", "bmi2" }, flops = 60e9, bytes = 12e9,
        vector = 32, registers = 16, panel = 16384, fma = "avx2" },
    ["x86-64-v4"] = { flags = joined(V3, V4), flops = 120e9, bytes = 15e9,
        vector = 64, registers = 32, panel = 24576, fma = "avx512",
        features = { "avx2", "fma", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl" } },
    aarch64 = { flags = {}, features = {}, flops = 20e9, bytes = 12e9,
        vector = 16, registers = 32, panel = 16384, fma = "neon" },
}

--- Compiler flags, the CPU features the program checks at start, and the sizes of a profile.
function profile.get(name) return PROFILES[name] end

--- The best profile for the features of a CPU (host.cpu()).
function profile.native(features)
    local has = {}
    for _, name in ipairs(features) do has[name] = true end
    if has.aarch64 then return "aarch64" end
    for _, name in ipairs { "x86-64-v4", "x86-64-v3" } do
        local all = true
        for _, feature in ipairs(PROFILES[name].features) do all = all and has[feature] end
        if all then return name end
    end
    return "generic"
end

return profile
