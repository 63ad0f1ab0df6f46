-- handlers: what a program says of groups of ranks and of gradient handlers (spec/handlers.lua): the list of each rank,
-- the share of the gradient by handler, the lines of step.c's header.
local c_text = require "emit.targets.c_text"
local ordered = require "base.ordered"
local sections = require "emit.program.sections"
local spec_handlers = require "spec.handlers"
local text = require "base.text"

local handlers = {}

-- "ep { 0 1 } { 2 3 }": a group with its lists.
local function lists_of(group)
    return group.name .. table.concat(ordered.collect(group.lists, function(list)
        return (" { %s }"):format(table.concat(list, " "))
    end))
end

--- Arguments of the block `groups` of memory.c; nil: there are none.
function handlers.groups(config)
    local rows = ordered.collect(config.rank_groups, function(group)
        local numbers = {}
        for rank = 0, config.ranks - 1 do numbers[#numbers + 1] = tostring(group.of[rank] - 1) end
        return c_text.wrap("", ('{"%s", %d, (const int[]){'):format(group.name, group.first), numbers, "}},")
            .. (" /* %s */"):format(lists_of(group))
    end)
    return #rows > 0 and { count = #rows, rows = sections.lines(rows) } or nil
end

--- Arguments of the block `shares` of a target's update. holder: the argument of share_of; ranks_of(number): the text
--- of how many ranks the own list of a group has.
function handlers.shares(g, config, holder, ranks_of)
    return { by_sum = config.loss.weight == "sum", lines = sections.lines(ordered.collect(g.handlers, function(entry, i)
        local group, value = entry.group, "1"
        if group then
            value = ("share_of(%s, %d)"):format(holder, group.number)
            if entry.op == "sum" then value = ranks_of(group.number) .. " * " .. value end
            value = "(real)(" .. value .. ")"
        end
        return ("share[%d] = %s; /* %s%s */"):format(i - 1, value, entry.name, group and (": the %s over %s"):format(
            entry.op, group.name) or ": the mean over all ranks")
    end)) }
end

-- Why a handler reduces as it does.
local function reason(entry)
    if entry.group then return ("the %s over %s"):format(entry.op, lists_of(entry.group)) end
    if entry.given_group then return ("%s has all ranks: the mean over all"):format(entry.given_group) end
    return spec_handlers.PRESETS[entry.name].doc
end

local WHEN = { last = "the last", every = "each" }

--- The lines of step.c that list what reduces the gradients, why, and of which parameters; nothing with one process.
function handlers.listed(g, config)
    local mode = config.mode
    if not mode.ranks then return text.block("") end
    local list = { ("/* How gradients are reduced over the ranks, in %s micro-step of a cycle: */"):format(
        WHEN[mode.reduces.role]) }
    if not config.handlers then
        list[2] = ("/* %s: %s, the default of %s: all trained parameters */"):format(mode.handler,
            spec_handlers.PRESETS[mode.handler].doc, mode.name)
    end
    for _, entry in ipairs(config.handlers or {}) do
        local names = ordered.collect(g.params, function(param)
            return param.used and spec_handlers.of(config, param) == entry and (param.name:gsub("%%d", "*")) or nil
        end)
        if #names == 0 then names = { "nothing: the entries before it take all that fit" } end
        list[#list + 1] = c_text.wrap("", ("/* %s: %s: "):format(entry.name, reason(entry)), names, " */")
    end
    return sections.lines(list)
end

return handlers
