-- Programs built for a profile (--march), whether this processor runs it or not.
local ordered = require "base.ordered"
local profile = require "emit.program.profile"

return function(t)
    local marches = { list = { "generic", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "sapphirerapids" } }
    local features = host.cpu()

    --- Whether this processor runs programs of a profile.
    function marches.runs(march) return profile.runs(march, features) end

    --- Ends the test as not run where the compiler is that of another processor.
    function marches.needs_compiler(march)
        if march ~= "generic" and (march == "aarch64") ~= marches.runs "aarch64" then
            t.not_run("needs a compiler for " .. march)
        end
    end

    --- For a profile of another kind of processor a compiler with options, and what runs its programs, as words of
    --- commands; nil where programs run here. The test ends as not run where a command is missing.
    function marches.cross(march)
        if march ~= "aarch64" or marches.runs(march) then return marches.needs_compiler(march) end
        local compiler, run = "aarch64-linux-gnu-gcc", "qemu-aarch64-static"
        local found = t.kept("cross", function()
            return t.shell(("command -v %s && command -v %s"):format(compiler, run)).status == 0 and "yes" or "no"
        end)
        if found == "no" then t.not_run(("needs %s and %s"):format(compiler, run)) end
        return { compiler = { compiler, "-static" }, run = { run } }
    end

    --- The options of the compiler that leave out the instructions of a profile that a processor with these features
    --- lacks, and define in plain C what the kernels take of them.
    function marches.without(march, has)
        local list = {}
        for _, flag in ipairs(table.move(profile.get(march).flags, 1, 99, 2, { "-mavx" })) do
            local feature = flag:match "^%-m([%w-]+)$"
            if feature and not ordered.find(has, feature) then list[#list + 1] = "-mno-" .. feature end
        end
        local folder = t.root .. "/tests/matrix"
        table.move({ "-Wno-psabi", "-include", folder .. "/plain.h" }, 1, 3, #list + 1, list)
        if not ordered.find(has, "avx512f") then list[#list + 1] = "-I" .. folder end
        return table.concat(list, " ")
    end

    --- The same without AVX-512 and the matrix registers, whatever this processor has.
    function marches.plain(march)
        local has = {}
        for _, feature in ipairs(features) do
            if not feature:find "^avx512" and not feature:find "^amx" then has[#has + 1] = feature end
        end
        return marches.without(march, has)
    end

    --- The options of the compiler with which programs of a profile run here: none, or instructions in plain C.
    function marches.options(march)
        marches.needs_compiler(march)
        return marches.runs(march) and "" or marches.without(march, features)
    end

    --- The level of a program of a profile, for build(): that of any other where its programs run here.
    function marches.level_of(march)
        local options = marches.options(march)
        return options ~= "" and t.quick .. " " .. options or nil
    end

    -- The profile that the programs of all tests are built for; nil: what their specs and options say.
    local forced = t.environment "GAGEN_TEST_MARCH"

    --- Whether there is one.
    marches.forced = forced ~= nil

    --- These options of gagen, with the forced profile unless they or the text of the spec name one.
    function marches.words(options, text)
        local words = table.move(options or {}, 1, #(options or {}), 1, {})
        local named = text:find "march *=" or table.concat(words, " "):find("--march", 1, true)
        if forced and not named then table.move({ "--march", forced }, 1, 2, #words + 1, words) end
        return words
    end

    --- These options of the compiler, t.quick if nil, with those that programs of the forced profile need.
    function marches.level(level)
        return (level or t.quick) .. (forced and " " .. marches.options(forced) or "")
    end

    return marches
end
