-- The intrinsics of AVX-512, AVX512-BF16 and AMX: the processor's and those in plain C (tests/matrix) have the values of
-- tests/numeric/intrinsics.c, and all that templates use are there.
local profile = require "emit.program.profile"

local PROGRAM = "tests/numeric/intrinsics.c"

local tests = {}
local function add(name, f) tests[#tests + 1] = { name, f } end

-- The program, built. options: of the compiler, in a text.
local function build(t, options)
    local program = t.root .. "/" .. t.temp() .. "/intrinsics"
    local command = { "cc", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off",
        "-I" .. t.root, "-I" .. t.root .. "/runtime", "-o", program }
    for _, flag in ipairs(profile.get("sapphirerapids").flags) do command[#command + 1] = flag end
    for word in options:gmatch "%S+" do command[#command + 1] = word end
    table.move({ t.root .. "/" .. PROGRAM, t.root .. "/" .. t.build .. "/libruntime.a", "-lm" }, 1, 3, #command + 1,
        command)
    local built = t.run(command)
    t.equal(built.status, 0, built.err)
    return program
end

local function check(t, options) t.equal(t.run({ build(t, options) }).out, "0 wrong\n") end

add("the values of this processor, in plain C what it lacks", function(t)
    local marches = t.load("tests/lua/marches.lua")(t)
    marches.needs_compiler "sapphirerapids"
    build(t, "")
    check(t, marches.options "sapphirerapids")
end)

add("the values of plain C, with and without AVX and FMA", function(t)
    local marches = t.load("tests/lua/marches.lua")(t)
    marches.needs_compiler "sapphirerapids"
    check(t, marches.plain "sapphirerapids")
    check(t, marches.without("sapphirerapids", {}))
end)

-- portable_vec_fma has them behind __FMA__ and plain C for all others.
local PORTABLE = { __builtin_ia32_vfmaddps = true, __builtin_ia32_vfmaddpd = true }

add("all that templates use are in plain C, and have their values checked", function(t)
    local plain = host.read "tests/matrix/immintrin.h" .. host.read "tests/matrix/plain.h"
    local checked, found = host.read(PROGRAM), 0
    local text = { host.read "gen/emit/targets/c/math.lua" }
    for _, file in ipairs(host.list "templates/c") do text[#text + 1] = host.read("templates/c/" .. file) end
    text = table.concat(text, "\n")
    local names = {}
    for _, pattern in ipairs { "_mm%d*_[%w_]+", "_tile_[a-z][%w_]*", "__builtin_ia32_[%w_]+" } do
        for name in text:gmatch("%f[%w_]" .. pattern) do
            if not PORTABLE[name] then names[#names + 1] = name end
        end
    end
    for _, name in ipairs(names) do
        found = found + 1
        local whole = "%f[%w_]" .. name .. "%f[^%w_]"
        if not plain:find(whole) then error(name .. ": not defined in tests/matrix") end
        if name:find "^_" and not name:find "^__" and not checked:find(whole) then
            error(name .. ": not in " .. PROGRAM)
        end
    end
    assert(found > 20, "no intrinsics found")
end)

-- clang 20 and later has no builtins of gcc's names for multiply-adds. One that says that it is of version 20 leaves none
-- of them in the texts that use them, one of version 18 leaves them.
add("no name of gcc's is left for a newer clang", function(t)
    if t.shell("command -v clang").status ~= 0 then t.not_run("needs clang") end
    local programs = t.load("tests/lua/programs.lua")(t)
    local folder = t.temp() .. "/program"
    t.equal(programs.gagen({ t.root .. "/specs/digits_mlp.lua", "--march", "x86-64-v3", "-o", folder }).status, 0)
    for _, file in ipairs { "math.c", "digits_mlp_predict.h" } do
        for version, wanted in next, { [20] = "__builtin_elementwise_fma", [18] = "__builtin_ia32_vfmaddps" } do
            local text = t.run({ "clang", "-std=gnu11", "-E", "-x", "c", "-mavx2", "-mfma",
                "-DDIGITS_MLP_PREDICT_IMPLEMENTATION", "-U__clang_major__", "-D__clang_major__=" .. version, "-I" .. folder,
                "-I" .. folder .. "/runtime", folder .. "/" .. file }).out
            for _, name in ipairs { "__builtin_elementwise_fma", "__builtin_ia32_vfmaddps" } do
                t.equal(text:find(name, 1, true) ~= nil, name == wanted, file .. " " .. version .. " " .. name)
            end
        end
    end
end)

return tests
