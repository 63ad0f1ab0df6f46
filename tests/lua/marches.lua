-- Programs built for a profile (--march), whether this processor runs it or not.
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

    --- The header that defines the products of bf16 in plain C, as options of the compiler.
    marches.plain = "-include " .. t.root .. "/tests/matrix/plain.h"

    --- The options of the compiler with which programs of a profile run here: none, or the header of plain C. The test
    --- ends as not run where neither helps.
    function marches.options(march)
        marches.needs_compiler(march)
        if marches.runs(march) then return "" end
        if not profile.get(march).matrix or not marches.runs "x86-64-v4" then
            t.not_run("this processor does not run " .. march)
        end
        return marches.plain
    end

    -- The profile that the programs of all tests are built for; nil: what their specs and options say.
    local forced = t.environment "GAGEN_TEST_MARCH"

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
