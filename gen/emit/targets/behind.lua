-- behind: the C text of a pointwise node in a product's kernel (passes/fusion.lua), for one element.
--
--   c[at] = value;   ->   c[at] = value;                            the product's own result, if others read it
--                         const real x_1 = with_1[at];
--                         behind[at] = x_1 + ga_tanhf(value);
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

-- The name of the parameter of a kernel's own result.
local function own_name(node) return node.op:find "^linear" and "c" or "y" end

--- The tensor that a product's kernel computes last, and the name of its parameter.
function behind.result(node)
    if node.behind and node.behind.both then return node.outs.behind.tensor, "behind" end
    return graph.result(node), own_name(node)
end

--- The names x_1, x_2 ... of further inputs that a list of statements reads, each with its parameter.
function behind.inputs(list)
    return ordered.collect(statements.inputs(list), function(name)
        return name:find "^x_%d+$" and { name, (name:gsub("^x_", "with_")) } or nil
    end)
end

--- The lines that compute an element over `value`, a product's sum, and the text of the result.
--- element(key, tensor, view): the text of an input's element. rounded: the function that rounds to 16 bits, or nil.
function behind.lines(node, spelling, element, rounded)
    local list = statements.split_all(statements.tidy(node.behind.statements, MOST_INSIDE), "part_")
    if rounded then spelling.call = ordered.copy(spelling.call, { rounded = rounded }) end
    local lines = ordered.collect(behind.inputs(list), function(input)
        local key = input[2]
        local t = node.ins[key]
        local place = t.kind == "scalar" and key or element(key, t, node.views[key])
        return ("const real %s = %s;"):format(input[1], t.dtype == "i32" and "(real)" .. place or c_text.load(t, place))
    end)
    local own, value = statements.text(list, "real", spelling)
    return table.move(own, 1, #own, #lines + 1, lines), value
end

--- These lines as text, each broken where it is long.
function behind.block(lines)
    return text.block(table.concat(ordered.collect(lines, function(line)
        return statements.broken("", line, COLUMNS)
    end), "\n"))
end

-- Whether what stands behind a product is a number of 16 bits before it is rounded.
local function is_exact(node, target)
    local exact = {}
    for _, input in ipairs(target.exact and behind.inputs(node.behind.statements) or {}) do
        exact[input[1]] = graph.is_half(node.ins[input[2]])
    end
    return target.exact and target.exact(node.behind.statements, exact)
end

--- The lines that store element `at` of a kernel's result, whose sum is `value`, and compute what stands behind it.
--- index: the text of `at` where a view divides it; in_place: the result's element is `value` already.
function behind.store(kernel, dtype, target, index, in_place)
    local node = kernel.node
    local own = own_name(node) .. "[at]"
    if not node.behind then return c_text.store(kernel, own, "value") end
    local function element(key, _, v) return ("%s[%s]"):format(key, v and view.text(v, index) or "at") end
    local lines, value = behind.lines(node, target.spelling(dtype, nil, node.at, kernel.half), element,
        kernel.half and kernel.half .. "_rounded")
    if node.behind.both and not in_place then
        table.insert(lines, 1, ("%s = %s;"):format(own, c_text.stored(graph.result(node), "value")))
    end
    local result, name = behind.result(node)
    lines[#lines + 1] = ("%s[at] = %s;"):format(name, c_text.stored(result, value, is_exact(node, target)))
    return behind.block(lines)
end

return behind
