-- kernels: a node becomes a call of a function of kernels.c: a template block of its op's family, filled with sizes and
-- formulas. Nodes whose functions have the same text share one, named after op and shape; the record of a call gives
-- the line in step.c, that of `gagen plan` and that of a profile.
--
--   linear 'fc1', linear 'fc2' of 64 x 64    ->    linear_16x64x64(w, m->a.fc1_y, m->a.x, m->v.fc1_weight, ...)
--                                                  linear_16x64x64(w, m->a.fc2_y, m->a.fc1_y, m->v.fc2_weight, ...)
local c_text = require "emit.targets.c_text"
local expr = require "base.expr"
local graph = require "graph.graph"
local ops = require "emit.targets.ops"
local ordered = require "base.ordered"
local statements = require "base.statements"
local text = require "base.text"
local view = require "graph.view"

local kernels = {}

-- What each input and output is called inside a template.
local PARAMETER_NAME = {
    linear = { y = "c", x = "a", weight = "b" },
    linear_in_out = { y = "c", x = "a", weight = "b" },
    linear_in_out_dx = { y = "c", dy = "a", weight = "b" },
    linear_in_out_dw = { y = "c", x = "a", dy = "b" },
    linear_dx = { y = "c", dy = "a", weight = "b" },
    linear_dw = { y = "c", dy = "a", x = "b" },
}

local function parameter_name(node, name)
    local map = PARAMETER_NAME[node.op]
    return map and map[name] or name
end

-- What the call of a node is known by in plans and profiles.
local function call_name(node, section)
    local out = graph.writes(node)[1].tensor
    if node.kernel_name then return node.kernel_name end
    if out.kind == "scalar" then return node.op end
    if node.op:find "^accumulate" then return (out.name:gsub("^d_", "accumulate_")) end
    local name = out.name
    if node.run and node.run.rest and not name:find("_rest$") then name = name .. "_rest" end
    section = node.section or section
    if section == "views" then return "pack_" .. name end
    if section ~= "backward" then return name:gsub("_out$", ""):gsub("_y$", "") .. "_forward" end
    if name:sub(1, 2) == "d_" then return "backward_" .. name:sub(3) end
    return "backward_" .. name
end

-- Arguments of templates that are no op's.
local ARGUMENTS = {}

-- What a pointwise kernel calls its arrays.
local function array_name(k) return "in" .. k end

-- A value of at most so many operations that is read once stands inside the statement that reads it.
local MOST_INSIDE = 6

-- One load per element that is read, at its place in the array: { lines, shown }, shown being the places for people.
local function loads_of(node, type_name, read, target)
    local lines, shown, number, count = {}, {}, {}, 0
    for _, key in ipairs(node.signature.ins) do
        local t, v = node.ins[key], node.views[key]
        if not number[t] then
            count = count + 1
            number[t] = count
        end
        local array = array_name(number[t])
        shown[key] = v and ("%s[%s]"):format(array, view.text(v, "i")) or array
        if read[key] then
            local value = array
            if t.kind ~= "scalar" then
                local cast = t.dtype == "i32" and type_name == "real" and "(real)" or ""
                value = c_text.load(t, ("%s%s[%s]"):format(cast, array, v and view.text(v, target.index) or "i"))
            end
            lines[#lines + 1] = ("const %s %s = %s;"):format(type_name, key, value)
        end
    end
    return lines, shown
end

-- The words of statements: { "silu", "mul_da" }.
local function words_of(list)
    return ordered.collect(list, function(s) return (s[1]:gsub("_%d+$", ""):gsub("_out$", "")) end)
end

-- "silu, add, exp, ..., mul": of many the first and the last.
local function words_shown(list)
    local words = words_of(list)
    if #words > 6 then words = { words[1], words[2], words[3], "...", words[#words] } end
    return table.concat(words, ", ")
end

-- A formula of at most so many columns is a kernel's comment; for a longer one the words stand there.
local MOST_SHOWN = 72

local function formula_of(node, list, shown)
    local formula = #list == 1 and expr.shown(list[1][2], function(name) return shown[name] end)
    return text.comment(formula and #formula <= MOST_SHOWN and formula or words_shown(node.statements))
end

-- Columns in front of a statement of a pointwise kernel.
local INDENT = 12

local function broken(line) return statements.broken("", line, 100 - INDENT) end

-- One load per input, then the statements, the last of which is stored. Ops that move values keep their type, all
-- others compute in the program's.
function ARGUMENTS.map(kernel, node, _, dtype, target)
    local out = graph.writes(node)[1].tensor
    local type_name = out.dtype == "i32" and target.i32 or "real"
    local list, read = statements.split_all(statements.tidy(node.statements, MOST_INSIDE), "part_"), {}
    for _, key in ipairs(statements.inputs(list)) do read[key] = true end
    local loads, shown = loads_of(node, type_name, read, target)
    local spelling = target.spelling(dtype, nil, node.at)
    if kernel.half then spelling.call = ordered.copy(spelling.call, { rounded = kernel.half .. "_rounded" }) end
    local lines, value = statements.text(list, type_name, spelling)
    if kernel.can_add then
        lines[#lines + 1] = ("const real value = %s;"):format(value)
        value = "value"
    end
    for _, line in ipairs(lines) do loads[#loads + 1] = broken(line) end
    return { n = graph.elements(out.shape), formula = formula_of(node, list, shown),
        loads = text.block(table.concat(loads, "\n")),
        store = text.block(broken(c_text.store(kernel, "out[i]", value).text)) }
end

-- What a node's kernel reads: { tensor, name, name of the input }, a pointwise one each tensor once.
local function operands(node)
    local list, seen = {}, {}
    for _, name in ipairs(node.signature.ins) do
        local t = node.ins[name]
        if t and not (node.statements and seen[t]) then
            seen[t] = true
            list[#list + 1] = { t, node.statements and array_name(#list + 1) or parameter_name(node, name), name }
        end
    end
    return list
end

local function parameters(kernel, node, target)
    local list = table.move(target.first_parameters, 1, #target.first_parameters, 1, {})
    for _, name in ipairs(node.signature.outs) do
        if node.outs[name] then
            local t = node.outs[name].tensor
            list[#list + 1] = target.parameter(t, node.statements and "out" or parameter_name(node, name), true)
        end
    end
    for _, operand in ipairs(operands(node)) do
        list[#list + 1] = target.parameter(operand[1], operand[2], false)
    end
    if kernel.draws then list[#list + 1] = target.iteration end
    if kernel.can_add then list[#list + 1] = "bool add" end
    if kernel.ends then list[#list + 1] = "bool last" end
    return list
end

local function cost_of(node, op)
    if node.statements then
        local n = graph.elements(graph.writes(node)[1].tensor.shape)
        return { flops = n * statements.count(node.statements), elements = n * (1 + #node.signature.ins) }
    end
    return op.cost(node)
end

-- Bytes of an element of what a kernel reads and writes, on average where some are of 16 bits.
local function bytes_each(node, dtype)
    local full, bytes, elements = dtype == "f64" and 8 or 4, 0, 0
    local function count(t)
        local n = graph.elements(t.shape)
        elements, bytes = elements + n, bytes + n * (graph.is_half(t) and 2 or full)
    end
    for _, t in ipairs(graph.reads(node)) do count(t) end
    for _, out in ipairs(graph.writes(node)) do count(out.tensor) end
    return bytes / elements
end

-- Elements of gradients that a node over some rows adds to: they are read too, each time.
local function added(node)
    local n = 0
    for _, out in ipairs(node.run and graph.writes(node) or {}) do
        if out.acc and not out.run then n = n + graph.elements(out.tensor.shape) end
    end
    return n
end

-- What the kernel of a node needs beside it: blocks of files of their own, "a b", in front of the first kernel that
-- needs them (targets/ops.lua). "a:half" is told of which type the inputs of products are: `type`, and `half` if it
-- is one of 16 bits.
local function helper_text(node, context, target)
    local out = {}
    for name, told in (ops.helper(node, target) or ""):gmatch("([%w_]+)(:?%S*)") do
        if not context.helpers[name] then
            local file, half = ("%s/%s%s"):format(target.folder, name, target.extension), context.half
            local arguments = told ~= "" and { half = half and text.ident(half) or false,
                type = text.ident(half or "real") } or {}
            out[#out + 1] = context.template(file)(name, arguments).text:gsub("\n*$", "\n\n", 1)
            context.helpers[name] = true
        end
    end
    return table.concat(out)
end

-- Words of a kernel's name, at most so many; of a longer list the first and the last.
local MOST_WORDS = 3

-- "gelu" or "add_relu" or "silu_to_mul": what a function computes, in a word.
local function op_name(node)
    if not node.statements then return node.op end
    local words = words_of(node.statements)
    if #words > MOST_WORDS then words = { words[1], "to", words[#words] } end
    return table.concat(words, "_")
end

-- "linear_4096x768x3072": the rows, columns and terms of a product; of all else the shape of the first result, if it is
-- an array.
local function function_name(node, op)
    local y = graph.writes(node)[1].tensor
    local shape = y.kind ~= "scalar" and graph.seen(node, node.signature.outs[1], y) or {}
    if op.gemm then
        local g = op.gemm(node)
        shape = { g.M, g.N, g.K }
    end
    return #shape > 0 and op_name(node) .. "_" .. table.concat(shape, "x") or op_name(node)
end

-- The text of a kernel's function of this name.
local function function_text(kernel, name, block, file, arguments, context)
    local target = context.target
    local open = target.open(name, kernel.launch)
    arguments.fn = text.ident(name)
    arguments.params = text.block(target.wrap("", open, kernel.parameters, ""):sub(#open + 1))
    arguments.source = text.comment("templates/" .. file)
    return (context.template(file)(block, arguments).text:gsub("\n+$", "\n"))
end

-- Adds the values of a table to a list of texts, those of a table in it by the path of their names; false if one is a
-- function.
local function add_values(parts, values, path)
    for key, value in ordered.each(values) do
        local kind = text.is(value) and "text" or type(value)
        if kind == "function" then return false end
        if kind == "table" then
            if not add_values(parts, value, path .. key .. ".") then return false end
        else
            local shown = kind == "text" and value.text or tostring(value)
            parts[#parts + 1] = path .. key .. ": " .. kind .. ": " .. shown
        end
    end
    return true
end

-- All that the text of a kernel's function follows from, as a text that is made faster than the function's own; nil if
-- an argument of the template is no plain value.
local function template_key(kernel, name, block, file, arguments)
    local parts = { file, block, name, table.concat(kernel.parameters, ", ") }
    local known = add_values(parts, arguments, "") and add_values(parts, kernel.launch or {}, "")
    return known and table.concat(parts, "\n") or nil
end

-- The function with this text: one of context.functions that is the same but for its name, or a new one there.
local function function_with(kernel, node, wanted, block, file, arguments, context)
    local functions = context.functions
    local body = function_text(kernel, wanted, block, file, arguments, context)
    local key = body .. (kernel.launch and kernel.launch.blocks or "")
    local found = functions.by_text[key]
    if not found then
        found = { name = graph.unique(functions, wanted), launch = kernel.launch, parameters = kernel.parameters }
        if found.name ~= wanted then body = function_text(kernel, found.name, block, file, arguments, context) end
        found.text = helper_text(node, context, context.target) .. body
        functions.by_text[key] = found
        functions.list[#functions.list + 1] = found
    end
    return found
end

-- The function of a kernel.
local function function_of(kernel, node, op, context)
    local target, functions = context.target, context.functions
    local family = node.statements and "pointwise" or op.lower
    local file = target.folder .. "/" .. family .. target.extension
    local arguments = ops.arguments(kernel, node, op, context.real, target, node.statements and ARGUMENTS.map)
    local block = node.statements and "map" or ops.block(kernel, node, op, target)
    kernel.parameters = parameters(kernel, node, target)
    local wanted = function_name(node, op)
    local key = template_key(kernel, wanted, block, file, arguments)
    local found = key and functions.by_arguments[key]
        or function_with(kernel, node, wanted, block, file, arguments, context)
    if key then functions.by_arguments[key] = found end
    return found
end

--- Where kernels.make keeps the functions of a program: list, { name, text, launch, parameters }, is in the order of
--- kernels.c.
function kernels.functions() return { list = {}, by_arguments = {}, by_text = {}, names = {} } end

--- The kernel record of a node: { name, node, section, fn, flops, bytes, can_add }; fn is its function.
function kernels.make(node, section, context)
    local op = context.ops[node.op]
    expr.blame(node.at)
    local half = context.half          -- products of the boundary are of the program's type
    if op and op.gemm and not graph.is_half(graph.reads(node)[1]) then half = nil end
    local kernel = { node = node, section = section, profile = context.profile, half = half,
        draws = op.draws and node.ins.facts ~= nil, ends = op.ends,
        name = graph.unique(context, call_name(node, section)) }
    for _, out in ipairs(graph.writes(node)) do
        kernel.can_add = kernel.can_add or out.acc ~= nil
    end
    local cost = cost_of(node, op)
    kernel.flops = cost.flops
    kernel.bytes = math.floor((cost.elements + added(node)) * bytes_each(node, context.real))
    kernel.fn = function_of(kernel, node, op, context)
    expr.blame(nil)
    return kernel
end

-- The address of what a node sees of a tensor.
local function address(node, name, tensor, target)
    local _, some = graph.seen(node, name, tensor)
    return target.pointer(tensor) .. (some and target.run_offset(tensor, node.run) or "")
end

--- The call of a kernel in step.c; `behind` is what follows on its line. The comment has the shape of the result, the
--- place in the spec and why the call is there, if that is not plain.
function kernels.call(kernel, pad, target, behind)
    local node, list, shape = kernel.node, { target.worker }, nil
    for _, name in ipairs(node.signature.outs) do
        local tensor = node.outs[name] and node.outs[name].tensor
        if tensor then
            list[#list + 1] = address(node, name, tensor, target)
            shape = shape or graph.shape_text((graph.seen(node, name, tensor)))
        end
    end
    for _, operand in ipairs(operands(node)) do
        local t = operand[1]
        list[#list + 1] = node.statements and target.pointer(t) or address(node, operand[3], t, target)
    end
    if kernel.draws then list[#list + 1] = node.scope and "l" or "0" end
    if kernel.can_add then
        for _, out in ipairs(graph.writes(node)) do
            local adds = target.adds(out)
            if adds then list[#list + 1] = adds end
        end
    end
    if kernel.ends then list[#list + 1] = "reduces" end
    local comment = ("%s %s%s"):format(shape, node.at:match("[^/]*$"), node.why and "; " .. node.why or "")
    local call = target.wrap(pad, kernel.fn.name .. "(", list, ");" .. behind)
    return c_text.commented(pad, call, text.comment(comment).text)
end

return kernels
