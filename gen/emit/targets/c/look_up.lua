-- look_up: functions of one number of bf16 as tables. A bf16 has 65,536 values, and a table of a function of it has the
-- results of all of them, computed once before main by the expression that it replaces, so that all bits stay. A
-- processor that reads 16 elements of a table at once (profile.tables) takes a third of the time of a GELU.
--
--   bf16_rounded(value) * (0.5f * (1.0f + ga_tanhf(... x_1 ...)) + ...)    ->
--   bf16_rounded(value) * gelu_dx_of[with_1[at].bits]
local c = require "emit.targets.c.c"
local expr = require "base.expr"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local statements = require "base.statements"
local text = require "base.text"

local look_up = {}

-- Functions that take longer than reading a table.
local COSTLY = { tanh = true, erf = true, exp = true, log = true, sin = true, cos = true, pow = true, log1p = true,
    expm1 = true }

-- The variable of a table's function; columns of a line of its formula.
local X, COLUMNS = "x", 100

--- A list of statements as one expression of its inputs.
function look_up.whole(list)
    local map = {}
    for _, s in ipairs(list) do map[s[1]] = expr.substitute(s[2], map) end
    return map[list[#list][1]]
end

local function is_costly(e)
    if COSTLY[e.op] then return true end
    for _, child in ipairs(e) do
        if is_costly(child) then return true end
    end
    return false
end

-- Whether e is the product's sum as a number of bf16.
local function is_sum(e) return e.op == "rounded" and e[1].op == "var" and e[1].name == "value" end

--- e with a variable of this name in the place of the product's rounded sum.
function look_up.of_sum(e, name)
    if is_sum(e) then return expr.var(name) end
    if #e == 0 then return e end
    local node = { op = e.op, value = e.value, name = e.name }
    for i, child in ipairs(e) do node[i] = look_up.of_sum(child, name) end
    return setmetatable(node, getmetatable(e))
end

-- The name of the table of a function of x, whose kernel then has it: one for each function of a program. word: of its
-- name; type: of its elements; store: the C text of an element, in the place of %s its value.
local function table_of(kernel, word, e, type, store)
    local spelling = c.spelling("f32", nil, kernel.node.at)
    spelling.call = ordered.copy(spelling.call, { rounded = "bf16_rounded" })
    local lines, value = statements.text(statements.split(e, "y", "part_"), "real", spelling)
    lines[#lines + 1] = ("$[bits] = %s;"):format(store:format(value))
    local body = table.concat(ordered.collect(lines, function(line)
        return statements.broken("", line, COLUMNS)
    end), "\n")
    local known = kernel.known_tables
    local found = known[type .. body]
    if not found then
        local name = graph.unique({ names = known.names }, word .. "_of")
        found = { name = text.ident(name), type = text.ident(type), fill = text.block((body:gsub("%$", name, 1))) }
        known[type .. body] = found
    end
    kernel.tables = kernel.tables or {}
    table.insert(kernel.tables, found)
    return found.name.text
end

-- The word of a table's name: the last statement's, without suffixes.
local function word_of(list) return (list[#list][1]:gsub("_%d+$", ""):gsub("_out$", "")) end

-- Whether tables are used for the statements behind a kernel's product.
local function applies(kernel) return kernel.half == "bf16" and kernel.profile.tables and kernel.node.behind end

--- The table from which the result behind a product follows, where that is a function of the product's own result,
--- which others read; nil: there is none.
function look_up.of_result(kernel)
    local node = kernel.node
    if not applies(kernel) or not node.behind.both or not graph.is_half(graph.result(node))
        or not graph.is_half(node.outs.behind.tensor) then return nil end
    local e = look_up.of_sum(look_up.whole(node.behind.statements), X)
    local names = expr.variables(e)
    if #names ~= 1 or names[1] ~= X or not is_costly(e) then return nil end
    return table_of(kernel, word_of(node.behind.statements), e, "bf16", "bf16_narrow(%s)")
end

-- The parameter of an input whose elements are numbers of bf16 in the places of the result's; nil: it is another input.
local function parameter_of(node, name)
    local key = name:find "^x_%d+$" and name:gsub("^x_", "with_")
    local t = key and node.ins[key]
    return t and t.kind ~= "scalar" and t.dtype == "bf16" and not node.views[key] and key or nil
end

--- The statements behind a kernel's product with variables in the place of each largest part that is a costly function
--- of one input, and a list of these variables, { name, table, key: the input's parameter }.
function look_up.of_inputs(kernel, list)
    local found = {}
    if not applies(kernel) then return list, found end
    local function replaced(e)
        local names = is_costly(e) and expr.variables(e) or {}
        if #names == 0 then return e end
        local key = #names == 1 and parameter_of(kernel.node, names[1])
        if key then
            local own = table_of(kernel, word_of(list), expr.substitute(e, { [names[1]] = expr.var(X) }), "float", "%s")
            found[#found + 1] = { name = "looked_" .. #found + 1, table = own, key = key }
            return expr.var(found[#found].name)
        end
        local node = { op = e.op, value = e.value, name = e.name }
        for i, child in ipairs(e) do node[i] = replaced(child) end
        return setmetatable(node, getmetatable(e))
    end
    local e = replaced(look_up.whole(list))
    if #found == 0 then return list, found end
    return { { list[#list][1], e } }, found
end

return look_up
