-- profile: all that gagen knows of a machine. Output depends on the profile's name, never on the
-- machine that generates; "native" is resolved once, by the driver.
local diag = require "base.diag"
local ordered = require "base.ordered"
local targets = require "emit.targets.targets"

local profile = {}

local V3 = { "-mavx2", "-mfma", "-mbmi", "-mbmi2", "-mlzcnt", "-mf16c", "-mmovbe" }
local V4 = { "-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl",
    "-mprefer-vector-width=512" }

local V4_FEATURES = { "avx2", "fma", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl" }

local function joined(a, b)
    return table.move(b, 1, #b, #a + 1, table.move(a, 1, #a, 1, {}))
end

-- flops and bytes per second of one core: coarse, only for the predictions of `gagen plan`.
-- vector: what an instruction works on, in bytes; registers: how many of them; fma: which instructions
-- multiply and add at once; panel, deep_panel: bytes of the first and of the second cache that a block of a product may
-- take; part: bytes of left operands and sums that a tile of a product of 16 bits keeps;
-- matrix: what multiplies bf16, "registers" (the matrix registers, AMX) or "vectors" (AVX512-BF16); matrix_flops:
-- of these products; f32: how products of f32 are computed, if not by multiply-adds; tables: whether 16
-- elements of a table are read faster than a function like tanh is computed.
local PROFILES = {
    generic = { flags = {}, features = {}, flops = 6e9, bytes = 8e9,
        vector = 16, registers = 16, panel = 16384, part = 262144 },
    ["x86-64-v3"] = { flags = V3, features = { "avx2", "fma", "bmi2" }, flops = 60e9, bytes = 12e9,
        vector = 32, registers = 16, panel = 24576, part = 786432, fma = "avx2" },
    ["x86-64-v4"] = { flags = joined(V3, V4), flops = 120e9, bytes = 15e9,
        vector = 64, registers = 32, panel = 24576, deep_panel = 98304, part = 1048576, fma = "avx512",
        features = V4_FEATURES },
    ["x86-64-v4-bf16"] = { flags = joined(joined(V3, V4), { "-mavx512bf16" }), flops = 120e9,
        bytes = 15e9, vector = 64, registers = 32, panel = 24576, deep_panel = 98304, part = 1048576, fma = "avx512",
        matrix = "vectors", matrix_flops = 240e9, features = joined(V4_FEATURES, { "avx512bf16" }) },
    sapphirerapids = { flags = joined(joined(V3, V4), { "-mavx512bf16", "-mamx-tile", "-mamx-bf16" }), flops = 120e9,
        bytes = 15e9, vector = 64, registers = 32, panel = 24576, deep_panel = 98304, part = 1048576, fma = "avx512",
        matrix = "registers", matrix_flops = 700e9, f32 = "bf16x6", tables = true,
        features = joined(V4_FEATURES, { "avx512bf16" }),
        system = { "amx-tile", "amx-bf16" } },
    aarch64 = { flags = {}, features = {}, flops = 20e9, bytes = 12e9,
        vector = 16, registers = 32, panel = 16384, part = 262144, fma = "neon" },
}

--- Compiler flags, the CPU features that the program checks at start, those that it asks the system for (`system`), and
--- the sizes of a profile.
function profile.get(name) return PROFILES[name] end

--- The sizes of a file for any processor, for a program of the profile of this name: multiply-adds are one instruction
--- where both processors have it.
function profile.portable(name)
    return ordered.copy(PROFILES.generic, { fma = PROFILES[name].fma and "portable" })
end

--- Whether a CPU with these features (host.cpu()) runs programs of a profile.
function profile.runs(name, features)
    local has = {}
    for _, feature in ipairs(features) do has[feature] = true end
    if name == "generic" or name == "aarch64" or has.aarch64 then return name == "generic" or has[name] == true end
    for _, list in ipairs { PROFILES[name].features, PROFILES[name].system } do
        for _, feature in ipairs(list) do
            if not has[feature] then return false end
        end
    end
    return true
end

--- The best profile for the features of a CPU.
function profile.native(features)
    for _, name in ipairs { "aarch64", "sapphirerapids", "x86-64-v4-bf16", "x86-64-v4", "x86-64-v3" } do
        if profile.runs(name, features) then return name end
    end
    return "generic"
end

-- The slices of an operand for each way of computing products of f32 (emit/targets/c/matrix.lua).
local SLICES = { bf16x6 = 3, bf16x3 = 2 }

--- The way in which the program of a configuration computes products of f32: "fma", "bf16x6" or "bf16x3"; nil for other
--- types. Refuses a way that the profile lacks.
function profile.f32(config)
    if config.precision ~= "f32" then return nil end
    local device = targets.of(config).device
    local own = not device and PROFILES[config.profile].f32
    if config.f32 == "auto" then return own or "fma" end
    if config.f32 ~= "fma" and not own then
        diag.fail(config.f32_at, ('precision: f32 is "%s", and %s has no matrix registers for it: expected "auto" or '
            .. '"fma"'):format(config.f32, device and ('the target "%s"'):format(config.target)
            or ('the profile "%s"'):format(config.profile)), {})
    end
    return config.f32
end

--- The numbers of bf16 as whose sum products take an operand of f32; nil: products of f32 use multiply-adds.
function profile.slices(config) return SLICES[profile.f32(config)] end

--- Whether products of a configuration's program are computed on matrix registers.
function profile.matrix(config)
    return profile.slices(config) ~= nil
        or config.precision == "bf16" and PROFILES[config.profile].matrix == "registers"
end

--- The profile and the arithmetic of products, for the head of a file.
function profile.shown(config)
    return ("Profile %s; products of %s%s."):format(config.profile, config.precision,
        profile.slices(config) and " as " .. profile.f32(config) or "")
end

return profile
