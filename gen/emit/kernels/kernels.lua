-- kernels: a node becomes a function of kernels.c: a template block of its op's family, filled with
-- sizes and formulas. The same record gives the call in step.c and the line of `gagen plan`.
local attention = require "emit.kernels.attention"
local batchnorm = require "emit.kernels.batchnorm"
local c = require "emit.targets.c.c"
local conv = require "emit.kernels.conv"
local expr = require "base.expr"
local graph = require "graph.graph"
local matmul = require "emit.targets.c.matmul"
local norm = require "emit.kernels.norm"
local ordered = require "base.ordered"
local pool = require "emit.kernels.pool"
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

local function rows_of(node) return graph.elements(node.size.lead or {}) end

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

-- Arguments of each op's template beside fn, params and source.
local ARGUMENTS = ordered.copy((require "emit.kernels.shape"), attention.arguments)
for _, family in ipairs { conv, pool, batchnorm, norm } do
    ARGUMENTS = ordered.copy(ARGUMENTS, family.arguments)
end

local function gemm(kernel, node, op, dtype)
    if kernel.half then
        return matmul.half_arguments(op.gemm(node), kernel, node.ins.bias ~= nil, kernel.profile)
    end
    return matmul.arguments(op.gemm(node), kernel, node.ins.bias ~= nil, dtype, kernel.profile)
end
for _, name in ipairs { "linear", "linear_dx", "linear_dw", "linear_in_out", "linear_in_out_dx",
    "linear_in_out_dw" } do
    ARGUMENTS[name] = gemm
end

-- The numbers of a table, a line each; nothing for nil.
local function number_rows(list, dtype)
    return text.block(table.concat(ordered.collect(list or {}, function(x)
        return expr.literal(x, dtype) .. ","
    end), "\n"))
end

-- Smoothing s and class weights w of a cross entropy; `total` is s / C times the sum of w.
local function class_arguments(node, dtype, arguments)
    local s, w, total = node.attrs.smoothing or 0, node.attrs.weights, 0
    for _, x in ipairs(w or {}) do total = total + s * x / #w end
    arguments.real, arguments.rows, arguments.C = text.ident("real"), rows_of(node), node.size.C
    arguments.smooth, arguments.weighted = s ~= 0, w ~= nil
    arguments.smoothing, arguments.rest = text.number(s, dtype), text.number(1 - s, dtype)
    arguments.weights = number_rows(w, dtype)
    return arguments, text.number(total, dtype)
end

-- How a row of logits is read: the C target widens one of 16 bits first, the other reads x = row[c], and the
-- element `spelling` as `name`.
local function logit_rows(node, arguments, target, name, spelling)
    local logits = node.ins.logits
    if target.folder == "c" then
        arguments.half = graph.is_half(logits)
    else
        arguments.type, arguments.x = c.type_of(logits), text.block(c.load(logits, "row[c]"))
        arguments[name] = text.block(c.load(logits, spelling))
    end
    return arguments
end

function ARGUMENTS.cross_entropy(_, node, _, dtype, target)
    local arguments = class_arguments(node, dtype,
        { exp = target.call("exp", dtype), log = target.call("log", dtype) })
    return logit_rows(node, arguments, target, "hit", "row[target[i]]")
end

function ARGUMENTS.cross_entropy_dx(kernel, node, _, dtype, target)
    local arguments, total = class_arguments(node, dtype,
        { exp = target.call("exp", dtype), store = c.store(kernel, "y[i]", "value"),
            logit = text.block(c.load(node.ins.logits, "logits[i]")) })
    arguments.total = total
    return arguments
end

-- Elements of the rows that are there: each row of the batch has as many.
local function counted(node)
    local lead = node.size.lead
    local each = graph.elements(lead) // lead[1]
    return text.block(each == 1 and "facts->rows" or ("facts->rows * %d"):format(each))
end

function ARGUMENTS.loss_seed(_, node, _, _, target)
    return { seed = text.block(target.scalar("seed", node.ins.seed)),
        real = text.ident("real"), rows = rows_of(node), counted = counted(node),
        targets = node.ins.target ~= nil, micro = node.ins.sums ~= nil }
end

function ARGUMENTS.micro_weight(_, node, _, dtype)
    local attrs, lead = node.attrs, node.size.lead
    return { real = text.ident("real"), each = graph.elements(lead) // lead[1], weighted = attrs.weights ~= nil,
        weights = number_rows(attrs.weights, dtype) }
end

function ARGUMENTS.tally(kernel, node, op, dtype)
    local weight = node.attrs.weight
    return ordered.copy(ARGUMENTS.micro_weight(kernel, node, op, dtype), { targets = node.ins.target ~= nil,
        samples = weight == "sample", micro = weight == "micro" })
end

function ARGUMENTS.tally_hits(_, node) return { counted = counted(node), f1 = node.attrs.f1 } end

function ARGUMENTS.hit(_, node, _, _, target)
    local arguments = { real = text.ident("real"), rows = rows_of(node), C = node.size.C }
    return logit_rows(node, arguments, target, "best", "row[best]")
end

function ARGUMENTS.dropout(kernel, node)
    local shape = node.ins.x.shape
    local width = graph.elements(shape) // shape[1]
    return { real = text.ident("real"), rows = shape[1], width = width, chunk = math.min(width, 4096),
        p = text.number(node.attrs.p, "f64"), name = text.string(node.attrs.name),
        x = text.block(c.load(node.ins.x, "x[i]")), store = c.store(kernel, "y[i]", "value") }
end

function ARGUMENTS.pack_in_out(_, node, _, _, target)
    local x = target.folder == "c" and "x[(size_t)n * K + k]" or "tile[lane][i]"
    return { N = node.size.N, K = node.size.K, value = text.block(c.stored(node.outs.y.tensor, x)) }
end

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
            value = c.load(t, ("%s%s[%s]"):format(t.dtype == "i32" and not whole and "(real)" or "", t.name,
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
        loads = text.block(table.concat(loads, "\n")), store = c.store(kernel, out.name .. "[i]", value) }
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

-- What the kernel of a node needs beside it: blocks of files of their own, op.helper = { c = "a b" } or a
-- function of the node, in front of the first kernel that needs them. "a:half" is told of which type the inputs
-- of products are: `type`, and `half` if it is one of 16 bits.
local function helper_text(node, op, context, target)
    local helper, out = op.helper, {}
    if type(helper) == "function" then helper = helper(node) end
    for name, told in (helper and helper[target.folder] or ""):gmatch("([%w_]+)(:?%S*)") do
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
    local arguments = target.arguments(kernel, node, op, dtype, node.exprs and ARGUMENTS.map or ARGUMENTS[node.op])
    arguments.fn = text.ident(kernel.name)
    arguments.params = text.block(parameters(kernel, node, target))
    arguments.source = text.comment(("%s, templates/%s%s"):format(node.at, file,
        node.why and "; " .. node.why or ""))
    local block = node.exprs and "map" or op.block or node.op
    if type(block) == "function" then block = block(node) end
    if half and op.gemm then block = block .. target.of_half end
    local own = context.template(file)(block, arguments).text:gsub("\n+$", "\n")
    kernel.text = helper_text(node, op, context, target) .. own
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
