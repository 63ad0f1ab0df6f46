-- probe: the text of probes.c: a table of kernels and their results, and for each kernel a macro that
-- puts a look at its results around its calls. step.c reads the same with and without it.
local gradients = require "emit.program.gradients"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local sections = require "emit.program.sections"
local text = require "base.text"

local probe = {}

local block_of = sections.lines

-- The results that are looked at: values of the program's type; not sums, not copies of weights. Rows of a
-- tensor that a kernel writes run by run are a result of their own. key: what they are known by.
local function results_of(kernel, real)
    local list, node = {}, kernel.node
    if not node or kernel.section == "views" or kernel.section == "boundary" then return list end
    for _, name in ipairs(node.signature.outs) do
        local t = node.outs[name] and node.outs[name].tensor
        if t then
            local shape, some = graph.seen(node, name, t)
            list[#list + 1] = { tensor = t, seen = t.kind ~= "scalar" and (t.dtype == real or graph.is_half(t)),
                shape = shape, key = some and node.run.first .. t.name or t, scope = some and node.scope or t.scope,
                rest = some and node.run.rest }
        end
    end
    return list
end

-- Gradients are called after the parameter as the spec has it, all else as in step.c.
local function name_of(result)
    local t = result.tensor
    if t.kind == "gradient" then return "d_" .. t.param.name end
    return t.name .. (result.rest and "_rest" or result.scope and ".%d" or "")
end

-- Numbers the results, those of `sections`' kernels, from 0.
local function number_results(kernels, real, evaluation, found)
    for _, kernel in ipairs(kernels) do
        if (kernel.section == "evaluation") == evaluation then
            for _, result in ipairs(results_of(kernel, real)) do
                if result.seen and not found.number[result.key] then
                    found.number[result.key] = #found.list
                    found.list[#found.list + 1] = result
                end
            end
        end
    end
end

local function result_rows(found)
    local rows, offset = {}, 0
    for i, result in ipairs(found.list) do
        local shape = result.shape
        local n, count = graph.elements(shape), result.scope and result.scope.count or 1
        rows[i] = ("{%s, 0, %d, %d, {%s}, %d, %d, %d},"):format(text.string(name_of(result)).text,
            count, #shape, table.concat(shape, ", "), offset, n, n)
        offset = offset + n * count
    end
    return block_of(rows)
end

local function macro_of(kernel, real, i, found, worker)
    local parameters, seen = { worker }, {}
    for k, result in ipairs(results_of(kernel, real)) do
        local name = "y" .. k
        parameters[#parameters + 1] = name
        if result.seen then
            seen[#seen + 1] = ("{%d, %s, %s}"):format(found.number[result.key], result.scope and "l" or "0", name)
        end
    end
    seen[#seen + 1] = "END"
    local list = table.concat(parameters, ", ")
    return ("#define %s(%s, ...) \\\n    PROBED(%d, %s(%s, ##__VA_ARGS__), %s)"):format(kernel.name, list,
        i - 1, kernel.name, list, table.concat(seen, ", "))
end

-- probes.c. own: rows of kernels, macros, how many results are dumped, the program's 16-bit type or false.
local function probes_text(config, context, header, found, own)
    local sizes = ("PROBED_KERNELS = %d, RESULT_COUNT = %d, DUMPED_RESULTS = %d"):format(#own.kernels, #found.list,
        own.dumped)
    local halves = ordered.collect(found.list, function(result)
        return graph.is_half(result.tensor) and "true" or "false"
    end)
    return sections.render(context.template("program/probes.c"), {
        { "head", { header = text.block(header("probes.c", "step.c includes it in train-probe: values and times")),
            kernels = block_of(own.kernels), tensors = result_rows(found), sizes = text.block(sizes) } },
        own.half and { "numbers", { half = own.half, halves = text.block(table.concat(halves, ", ")) } },
        { config.target == "cuda" and "device" or "host", { half = own.half } },
        { "functions", { name = text.ident(config.name), macros = block_of(own.macros) } },
    })
end

--- probes.h and probes.c, in a map of files. `kernels`: all that step.c calls, in its order.
function probe.render(g, config, context, kernels, header, files)
    local found = { list = {}, number = {} }
    number_results(kernels, g.real, false, found)
    local dumped = #found.list
    number_results(kernels, g.real, true, found)
    local rows, macros = {}, {}
    for i, kernel in ipairs(kernels) do
        local at = kernel.at or kernel.node and kernel.node.at or "the boundary"
        rows[i] = ("{%s, %s, %d, %d},"):format(text.string(kernel.name).text, text.string(at).text,
            kernel.flops or 0, kernel.bytes or 0)
        macros[i] = macro_of(kernel, g.real, i, found, context.target.worker)
    end
    local name, half = text.ident(config.name), gradients.half(g)
    files:set("probes.h", context.template("program/probes.h")("probes", { name = name,
        guard = text.ident(config.name:upper() .. "_PROBES_H"),
        header = text.block(header("probes.h", "what train-probe has beyond train")) }).text)
    files:set("probes.c", probes_text(config, context, header, found, {
        kernels = rows, macros = macros, dumped = dumped, half = half and text.ident(half) or false }))
end

return probe
