-- cpu: the check that the processor has what a program was built for.
local ordered = require "base.ordered"
local sections = require "emit.program.sections"
local text = require "base.text"

local cpu = {}

-- A line for each feature of the processor that the program was built for.
local function feature_tests(config)
    return ordered.collect(config.cpu_features, function(feature)
        local name = text.string(feature).text
        return ("if (!__builtin_cpu_supports(%s)) return %s;"):format(name, name)
    end)
end

--- Whether a program has the check: it needs a feature that not every processor of its kind has.
function cpu.is_checked(config) return #config.cpu_features > 0 end

--- The section with the check, once in a program; false where it has none. Its file includes stdio.h and stdlib.h.
function cpu.section(config, context)
    return cpu.is_checked(config) and sections.block(context.template("program/cpu.c"), "check_cpu",
        { name = text.ident(config.name), tests = sections.lines(feature_tests(config)) })
end

return cpu
