-- behind: the C text of a pointwise node in a product's kernel (passes/fusion.lua), for one element.
--
--   c[at] = value;   ->   c[at] = value;                            the product's own result, if others read it
--                         const real x_1 = with_1[at];
--                         behind[at] = x_1 + ga_tanhf(value);
local c = require "emit.targets.c.c"
local c_text = require "emit.targets.c_text"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local statements = require "base.statements"
local text = require "base.text"
local view = require "graph.view"

local behind = {}

-- A value that is read once and takes at most this many operations is written inside the statement that reads it.
local MOST_INSIDE = 6

-- Columns of a line in the innermost loop of a product.
local COLUMNS = 72

local LINE = 64         -- bytes of a line of memory

-- Lines that load the element `at` of each further input that the statements read.
local function loads_of(node, list)
    local lines = {}
    for _, name in ipairs(statements.inputs(list)) do
        local number = name:match("^x_(%d+)$")
        if number then
            local key = "with_" .. number
            local t, v = node.ins[key], node.views[key]
            local place = t.kind == "scalar" and key or ("%s[%s]"):format(key, v and view.text(v, "at") or "at")
            lines[#lines + 1] = ("const real %s = %s;"):format(name,
                t.dtype == "i32" and "(real)" .. place or c_text.load(t, place))
        end
    end
    return lines
end

--- The lines that ask for the elements of further inputs that a part of the result needs, in `rows` rows; false if none
--- is read where the result's elements lie. place: the part's place in the result; columns: of a row, nil: in one line.
function behind.ahead(node, place, rows, columns)
    local lines = {}
    for _, name in ipairs(statements.inputs(node.behind.statements)) do
        local key = name:gsub("^x_", "with_")
        local t = name:match("^x_%d+$") and node.ins[key]
        if t and t.kind ~= "scalar" and not node.views[key] then
            local count = columns and rows * (columns * graph.bytes(t) // LINE) or rows
            lines[#lines + 1] = ("fetch_lines(%s + %s, N * sizeof *%s, %s, 0, %s);"):format(key, place, key, rows,
                count)
        end
    end
    return #lines > 0 and text.block(table.concat(lines, "\n"))
end

--- The lines that store element `at` of a kernel's result c, whose sum is `value`, and compute what stands behind it.
--- in_place: c[at] is `value` already.
function behind.store(kernel, dtype, in_place)
    local node = kernel.node
    local own = graph.result(node)
    if not node.behind then return c_text.store(kernel, "c[at]", "value") end
    local list = statements.split_all(statements.tidy(node.behind.statements, MOST_INSIDE), "part_")
    local spelling = c.spelling(dtype, nil, node.at)
    if kernel.half then spelling.call = ordered.copy(spelling.call, { rounded = kernel.half .. "_rounded" }) end
    local lines, value = statements.text(list, "real", spelling)
    local all, both = loads_of(node, list), node.behind.both
    if both and not in_place then table.insert(all, 1, ("c[at] = %s;"):format(c_text.stored(own, "value"))) end
    table.move(lines, 1, #lines, #all + 1, all)
    local result = both and node.outs.behind.tensor or own
    all[#all + 1] = ("%s[at] = %s;"):format(both and "behind" or "c", c_text.stored(result, value))
    return text.block(table.concat(ordered.collect(all, function(line)
        return statements.broken("", line, COLUMNS)
    end), "\n"))
end

return behind
