-- behind: a pointwise node in a product's kernel (targets/behind.lua), as the C target computes it.
local behind = require "emit.targets.behind"
local c = require "emit.targets.c.c"
local graph = require "graph.graph"
local look_up = require "emit.targets.c.look_up"
local ordered = require "base.ordered"
local text = require "base.text"

local c_behind = {}

local LINE = 64         -- bytes of a line of memory

--- The lines that ask for the elements of further inputs that a part of the result needs, in `rows` rows; false if none
--- is read where the result's elements lie. place: the part's place in the result; columns: of a row, nil: in one line.
function c_behind.ahead(node, place, rows, columns)
    local lines = {}
    for _, input in ipairs(behind.inputs(node.behind.statements)) do
        local key = input[2]
        local t = node.ins[key]
        if t.kind ~= "scalar" and not node.views[key] then
            local count = columns and rows * (columns * graph.bytes(t) // LINE) or rows
            lines[#lines + 1] = ("fetch_lines(%s + %s, N * sizeof *%s, %s, 0, %s);"):format(key, place, key, rows,
                count)
        end
    end
    return #lines > 0 and text.block(table.concat(lines, "\n"))
end

--- The lines that store element `at` of a kernel's result c, whose sum is `value`, and compute what stands behind it.
--- in_place: c[at] is `value` already.
function c_behind.store(kernel, dtype, in_place)
    local node, shown = kernel.node, {}
    if node.behind then
        local list
        list, shown = look_up.of_inputs(kernel, node.behind.statements)
        node = ordered.copy(node, { behind = ordered.copy(node.behind, { statements = list }) })
    end
    local target = ordered.copy(c, { spelling = function(real, _, at)
        return c.spelling(real, function(name) return shown[name] or name end, at)
    end })
    return behind.store(ordered.copy(kernel, { node = node }), dtype, target, "at", in_place)
end

return c_behind
