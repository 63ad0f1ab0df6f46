-- kernels: a node becomes a function of kernels.c: a template block of its op's family, filled with
-- sizes and formulas. The same record gives the call in step.c and the line of `gagen plan`.
local c_text = require "emit.targets.c_text"
local expr = require "base.expr"
local graph = require "graph.graph"
local ops = require "emit.targets.ops"
local ordered = require "base.ordered"
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

local function function_name(node, section)
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

-- One load per input, and the formula in terms of the inputs' names. Ops that move values keep their
-- type, all others compute in the program's.
function ARGUMENTS.map(kernel, node, _, dtype, target)
    local out = graph.writes(node)[1].tensor
    local whole = out.dtype == "i32"
    local type_name = whole and target.i32 or "real"
    local loads, names = {}, {}
    for i, key in ipairs(node.signature.ins) do
        local t, v = node.ins[key], node.views[key]
        local value, shown = t.name, t.name
        if t.kind ~= "scalar" then
            value = c_text.load(t, ("%s%s[%s]"):format(t.dtype == "i32" and not whole and "(real)" or "", t.name,
                v and view.text(v, target.index) or "i"))
        end
        if v then shown = ("%s[%s]"):format(t.name, view.text(v, "i")) end
        loads[i], names[key] = ("const %s %s = %s;"):format(type_name, key, value), shown
    end
    local formula = expr.shown(node.exprs.y, function(name) return names[name] end)
    local spelling = target.spelling(dtype, nil, node.at)
    if kernel.half then spelling.call = ordered.copy(spelling.call, { rounded = kernel.half .. "_rounded" }) end
    local value = expr.text(node.exprs.y, spelling)
    if kernel.can_add then
        loads[#loads + 1] = ("const real value = %s;"):format(value)
        value = "value"
    end
    return { n = graph.elements(out.shape), formula = text.comment(formula),
        loads = text.block(table.concat(loads, "\n")), store = c_text.store(kernel, out.name .. "[i]", value) }
end

-- What a node's kernel reads: { tensor, name }, a pointwise one each tensor once and by its own name.
local function operands(node)
    local list, seen = {}, {}
    for _, name in ipairs(node.signature.ins) do
        local t = node.ins[name]
        if t and not (node.exprs and seen[t]) then
            seen[t] = true
            list[#list + 1] = { t, node.exprs and t.name or parameter_name(node, name), name }
        end
    end
    return list
end

local function parameters(kernel, node, target)
    local list = table.move(target.first_parameters, 1, #target.first_parameters, 1, {})
    for _, name in ipairs(node.signature.outs) do
        if node.outs[name] then
            local t = node.outs[name].tensor
            list[#list + 1] = target.parameter(t, node.exprs and t.name or parameter_name(node, name), true)
        end
    end
    for _, operand in ipairs(operands(node)) do
        list[#list + 1] = target.parameter(operand[1], operand[2], false)
    end
    if kernel.draws then list[#list + 1] = target.iteration end
    if kernel.can_add then list[#list + 1] = "bool add" end
    if kernel.ends then list[#list + 1] = "bool last" end
    kernel.parameters = list
    local open = target.open(kernel.name, kernel.launch)
    return target.wrap("", open, list, ""):sub(#open + 1)
end

local function cost_of(node, op)
    if node.exprs then
        local n = graph.elements(graph.writes(node)[1].tensor.shape)
        return { flops = n * expr.count(node.exprs.y), elements = n * (1 + #node.signature.ins) }
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
            out[#out + 1] = context.template(file)(name, arguments).text .. "\n"
            context.helpers[name] = true
        end
    end
    return table.concat(out)
end

--- The kernel record of a node: { name, node, text, flops, bytes, can_add }.
function kernels.make(node, section, context)
    local op, target = context.ops[node.op], context.target
    expr.blame(node.at)
    local half = context.half          -- products of the boundary are of the program's type
    if op and op.gemm and not graph.is_half(graph.reads(node)[1]) then half = nil end
    local kernel = { node = node, section = section, profile = context.profile, half = half,
        draws = op.draws and node.ins.facts ~= nil, ends = op.ends,
        name = graph.unique(context, function_name(node, section)) }
    for _, out in ipairs(graph.writes(node)) do
        kernel.can_add = kernel.can_add or out.acc ~= nil
    end
    local dtype = context.real
    local cost = cost_of(node, op)
    kernel.flops = cost.flops
    kernel.bytes = math.floor((cost.elements + added(node)) * bytes_each(node, dtype))
    local family = node.exprs and "pointwise" or op.lower
    local file = target.folder .. "/" .. family .. target.extension
    local arguments = ops.arguments(kernel, node, op, dtype, target, node.exprs and ARGUMENTS.map)
    arguments.fn = text.ident(kernel.name)
    arguments.params = text.block(parameters(kernel, node, target))
    arguments.source = text.comment(("%s, templates/%s%s"):format(node.at, file,
        node.why and "; " .. node.why or ""))
    local block = node.exprs and "map" or ops.block(kernel, node, op, target)
    local own = context.template(file)(block, arguments).text:gsub("\n+$", "\n")
    kernel.text = helper_text(node, context, target) .. own
    expr.blame(nil)
    return kernel
end

-- The address of what a node sees of a tensor.
local function address(node, name, tensor, target)
    local _, some = graph.seen(node, name, tensor)
    return target.pointer(tensor) .. (some and target.run_offset(tensor, node.run) or "")
end

--- The call of a kernel in step.c; `behind` is what follows on its line.
function kernels.call(kernel, pad, target, behind)
    local node, list = kernel.node, { target.worker }
    local comment = {}
    for _, name in ipairs(node.signature.outs) do
        local tensor = node.outs[name] and node.outs[name].tensor
        if tensor then
            list[#list + 1] = address(node, name, tensor, target)
            comment[#comment + 1] = graph.shape_text((graph.seen(node, name, tensor)))
        end
    end
    for _, operand in ipairs(operands(node)) do
        list[#list + 1] = node.exprs and target.pointer(operand[1]) or address(node, operand[3], operand[1], target)
    end
    if kernel.draws then list[#list + 1] = node.scope and "l" or "0" end
    if kernel.can_add then
        for _, out in ipairs(graph.writes(node)) do
            local adds = target.adds(out)
            if adds then list[#list + 1] = adds end
        end
    end
    if kernel.ends then list[#list + 1] = "reduces" end
    return target.wrap(pad, kernel.name .. "(", list,
        (");%s // %s"):format(behind, table.concat(comment, " ")))
end

return kernels
