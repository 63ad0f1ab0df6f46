-- behind: a pointwise node in a product's kernel (targets/behind.lua), as the C target computes it.
local behind = require "emit.targets.behind"
local c = require "emit.targets.c.c"
local expr = require "base.expr"
local graph = require "graph.graph"
local look_up = require "emit.targets.c.look_up"
local ordered = require "base.ordered"
local rounding = require "emit.targets.c.rounding"
local statements = require "base.statements"
local text = require "base.text"
local view = require "graph.view"

local c_behind = {}

local LINE = 64         -- bytes of a line of memory

c_behind.ROUNDED = "rounded"    -- the variable of a product's sum as a number of bf16

local COMPUTED = { value = true }       -- the variable of what a kernel computes before what stands behind it

--- The lines that ask for the elements of further inputs that a part of the result needs, `rows` rows (a number, or
--- the name of a constant) of so many columns; false if none is read where the result's elements lie. place: the part's
--- place in the result.
function c_behind.ahead(node, place, rows, columns)
    local lines = {}
    for _, input in ipairs(behind.inputs(node.behind.statements)) do
        local key = input[2]
        local t = node.ins[key]
        if t.kind ~= "scalar" and not node.views[key] then
            local across = (columns * graph.bytes(t) + LINE - 1) // LINE
            local count = math.type(rows) and rows * across or across > 1 and across .. " * " .. rows or rows
            lines[#lines + 1] = ("fetch_lines(%s + %s, N * sizeof *%s, %s, 0, %s);"):format(key, place, key, rows,
                count)
        end
    end
    return #lines > 0 and text.block(table.concat(lines, "\n"))
end

-- A node with tables in the place of costly functions behind its product, the target that spells them, and the list of
-- them (look_up.of_inputs). text: the format of an element by its name, its table and its parameter.
local function with_tables(kernel, list, text_of)
    local node, shown = kernel.node, {}
    local found
    list, found = look_up.of_inputs(kernel, list)
    for _, one in ipairs(found) do shown[one.name] = text_of(one) end
    return ordered.copy(node, { behind = ordered.copy(node.behind, { statements = list }) }),
        ordered.copy(c, { spelling = function(real, _, at)
            return c.spelling(real, function(name) return shown[name] or name end, at)
        end }), found
end

-- The element of a table for element `at` of its input; element `at` of an input, which a view may find elsewhere.
local function element_of_table(one) return ("%s[%s[at].bits]"):format(one.table, one.key) end
local function element_at(key, _, v) return ("%s[%s]"):format(key, v and view.text(v, "at") or "at") end

--- The lines that store element `at` of a kernel's result c, whose sum is `value`, and compute what stands behind it.
--- in_place: c[at] is `value` already.
function c_behind.store(kernel, dtype, in_place)
    local node, target = kernel.node, c
    if node.behind then
        node, target = with_tables(kernel, node.behind.statements, element_of_table)
    end
    return behind.store(ordered.copy(kernel, { node = node }), dtype, target, "at", in_place)
end

--- The text that computes element `at` of a block behind a product from ROUNDED, the product's sum as a number of bf16,
--- and stores it in `to`, to be rounded to bf16; nil: something reads a sum itself, or the result may be a number that
--- was not computed.
---   text      this text
---   tables    the tables that are read for the block before it (look_up.of_inputs): `place` is the element of an array
---   result    the name of the result's parameter
function c_behind.of_rounded(kernel, to, place)
    local node, list = kernel.node, {}
    if not graph.is_half(behind.result(node)) then return nil end
    for i, s in ipairs(node.behind.statements) do list[i] = { s[1], look_up.of_sum(s[2], c_behind.ROUNDED) } end
    if ordered.find(statements.inputs(list), "value")
        or not rounding.is_computed(list, { [c_behind.ROUNDED] = true }) then return nil end
    local shown, target, tables = with_tables(kernel, list, function(one)
        return ("%s[%s]"):format(one.name, place)
    end)
    local lines, value = behind.lines(shown, target.spelling("f32", nil, node.at), element_at, "bf16_rounded")
    lines[#lines + 1] = ("%s = %s;"):format(to, value)
    return { text = behind.block(lines).text, tables = tables, result = select(2, behind.result(node)) }
end

--- The text that computes element `at` of a kernel's result, whose value before what stands behind it is `value`, and
--- stores it in `to`, an element of a row that is rounded to bf16 as a whole; nil: results are rounded one by one, as
--- where they may be added to what is there. The second value is the name of the result's parameter.
function c_behind.in_row(kernel, dtype, to)
    local node = kernel.node
    local t, name = behind.result(node)
    if not graph.is_half(t) or kernel.can_add or node.behind and node.behind.both then return nil end
    local list = c.late(kernel, node.behind and node.behind.statements or { { "value", expr.var "value" } }, COMPUTED)
    if not list then return nil end
    local lines, value = {}, "value"
    if node.behind then
        local shown, target = with_tables(kernel, list, element_of_table)
        lines, value = behind.lines(shown, target.spelling(dtype, nil, node.at), element_at, "bf16_rounded")
    end
    lines[#lines + 1] = ("%s = %s;"):format(to, value)
    return behind.block(lines), text.ident(name)
end

return c_behind
