-- behind: a pointwise node in a product's kernel (targets/behind.lua), as the C target computes it.
local behind = require "emit.targets.behind"
local c = require "emit.targets.c.c"
local graph = require "graph.graph"
local look_up = require "emit.targets.c.look_up"
local ordered = require "base.ordered"
local statements = require "base.statements"
local text = require "base.text"
local view = require "graph.view"

local c_behind = {}

local LINE = 64         -- bytes of a line of memory

c_behind.ROUNDED = "rounded"    -- the variable of a product's sum as a number of bf16

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

--- The lines that store element `at` of a kernel's result c, whose sum is `value`, and compute what stands behind it.
--- in_place: c[at] is `value` already.
function c_behind.store(kernel, dtype, in_place)
    local node, target = kernel.node, c
    if node.behind then
        node, target = with_tables(kernel, node.behind.statements, function(one)
            return ("%s[%s[at].bits]"):format(one.table, one.key)
        end)
    end
    return behind.store(ordered.copy(kernel, { node = node }), dtype, target, "at", in_place)
end

-- Operations that may give one of their operands, or its sign turned.
local PASSES_ON = { neg = true, abs = true, max = true, min = true, where = true, recurrence = true, rounded = true }

-- Whether e is never denormal: threads make what they compute 0 then, and so is a product's rounded sum.
local function is_computed(e)
    if e.op == "var" then return e.name == c_behind.ROUNDED end
    if not PASSES_ON[e.op] then return true end
    for i = e.op == "where" and 2 or 1, #e do
        if not is_computed(e[i]) then return false end
    end
    return true
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
    if ordered.find(statements.inputs(list), "value") or not is_computed(look_up.whole(list)) then return nil end
    local shown, target, tables = with_tables(kernel, list, function(one)
        return ("%s[%s]"):format(one.name, place)
    end)
    local function element(key, _, v) return ("%s[%s]"):format(key, v and view.text(v, "at") or "at") end
    local lines, value = behind.lines(shown, target.spelling("f32", nil, node.at), element, "bf16_rounded")
    lines[#lines + 1] = ("%s = %s;"):format(to, value)
    return { text = behind.block(lines).text, tables = tables, result = select(2, behind.result(node)) }
end

return c_behind
