-- probe: the text of probes.c: a table of the calls of kernels and their results, and for each function a macro that
-- puts a look at its results around its calls. step.c reads the same with and without it: the compiler counts the
-- calls (__COUNTER__), and the table has them in the order of step.c. train-watch compares these results (watch.lua).
local c_text = require "emit.targets.c_text"
local gradients = require "emit.program.gradients"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local sections = require "emit.program.sections"
local text = require "base.text"
local watch = require "emit.program.watch"

local probe = {}

local block_of = sections.lines

local NONE = {}

-- The results of a kernel. `seen`: train-probe shows values of the program's type; not sums, not copies of weights.
-- Rows of a tensor that a kernel writes run by run are a result of their own. key: what they are known by. whole: the
-- shape of the tensor that a result is some columns of.
local function find_results(kernel, real)
    local list, node = {}, kernel.node
    if not node or kernel.section == "boundary" then return NONE end
    for _, name in ipairs(node.signature.outs) do
        local t = node.outs[name] and node.outs[name].tensor
        if t then
            local shape, some = graph.seen(node, name, t)
            list[#list + 1] = { tensor = t, shape = shape, key = some and node.run.first .. t.name or t,
                seen = kernel.section ~= "views" and t.kind ~= "scalar" and (t.dtype == real or graph.is_half(t)),
                scope = some and node.scope or t.scope, rest = some and node.run.rest,
                whole = node.outs[name].columns and t.shape }
        end
    end
    return list
end

-- find_results, once for each kernel.
local function results_of(found, kernel)
    local list = found.results[kernel] or find_results(kernel, found.real)
    found.results[kernel] = list
    return list
end

-- Gradients are called after the parameter as the spec has it, all else as in step.c.
local function name_of(result)
    local t = result.tensor
    if t.kind == "gradient" then return "d_" .. t.param.name end
    return t.name .. (result.rest and "_rest" or result.scope and ".%d" or "")
end

-- Numbers the results, those of `sections`' kernels, from 0.
local function number_results(kernels, evaluation, found)
    for _, kernel in ipairs(kernels) do
        if (kernel.section == "evaluation") == evaluation then
            for _, result in ipairs(results_of(found, kernel)) do
                if result.seen and not found.number[result.key] then
                    found.number[result.key] = #found.list
                    found.list[#found.list + 1] = result
                end
            end
        end
    end
end

-- Numbers the results as train-watch compares them, behind those that are seen: all others, and the whole of those that
-- are columns.
local function number_compared(kernels, found)
    for _, kernel in ipairs(kernels) do
        for _, result in ipairs(results_of(found, kernel)) do
            if not found.compared[result.key] then
                local number = not result.whole and found.number[result.key]
                found.compared[result.key] = number or #found.list
                if not number then
                    found.list[#found.list + 1] = ordered.copy(result, { shape = result.whole or result.shape })
                end
            end
        end
    end
end

local function result_rows(found)
    local rows, offset = {}, 0
    for i, result in ipairs(found.list) do
        local shape = result.shape
        local n, scope = graph.elements(shape), result.scope
        local count = scope and scope.count or 1
        rows[i] = ("{%s, %d, %d, %d, {%s}, %d, %d, %d},"):format(text.string(name_of(result)).text,
            scope and graph.first_layer(scope) or 0, count, #shape, table.concat(shape, ", "), offset, n, n)
        offset = offset + n * count
    end
    return block_of(rows)
end

-- How the rows of results lie, or false: all lie behind each other.
local function row_distances(found, seen)
    local rows, some = {}, false
    for i = 1, seen do
        local t = found.list[i].tensor
        rows[i], some = ("{%d, %d},"):format(t.row and t.shape[#t.shape] or 0, t.row or 0), some or t.row ~= nil
    end
    return some and block_of(rows)
end

-- The calls of functions of nodes in the order of step.c, as rows: which kernel, what of RESULTS each argument is that
-- it writes (-1: nothing), whether there is one for each iteration, and what of RESULTS train-watch compares. A twin's
-- are those of the node that it repeats.
local function call_rows(g, kernels, found)
    local number, rows = {}, {}
    for i, kernel in ipairs(kernels) do number[kernel.name] = i - 1 end
    local bodies = { g.views, g.forward, g.evaluation, g.backward }
    for i, f in ipairs(g.iterations) do table.insert(bodies, i + 1, f.region.body) end
    for _, body in ipairs(bodies) do
        graph.walk(body, function(node)
            if not (node.kernel and node.kernel.fn) then return end
            local seen = {}
            for _, result in ipairs(results_of(found, (node.twin or node).kernel)) do
                seen[#seen + 1] = ("{%d, %s%s}"):format(result.seen and found.number[result.key] or -1,
                    result.scope and "true" or "false",
                    found.watched and ", " .. found.compared[result.key] or "")
            end
            if #seen == 0 then seen[1] = found.watched and "{-1, false, -1}" or "{-1, false}" end
            rows[#rows + 1] = ('{%d, "%s", %d, {%s}},'):format(number[node.kernel.name], node.kernel.fn.name, #seen,
                table.concat(seen, ", "))
        end)
    end
    return rows
end

-- The macro of a function of nodes with so many results, and of a kernel of the boundary.
local function macro_of(name, results, worker)
    local list, places = { worker }, {}
    for k = 1, results do
        list[k + 1] = "y" .. k
        places[k] = "y" .. k
    end
    local arguments = table.concat(list, ", ")
    return ("#define %s(%s, ...) PROBED(\\\n    %s(%s, ##__VA_ARGS__), \"%s\", %s)"):format(name, arguments, name,
        arguments, name, #places > 0 and table.concat(places, ", ") or "0")
end

local function macro_of_boundary(kernel, i, worker)
    return ("#define %s(%s, ...) TIMED(%d, %s(%s, ##__VA_ARGS__))"):format(kernel.name, worker, i - 1, kernel.name,
        worker)
end

-- probes.c. own: rows of kernels and calls, most results of a call, macros, how many results are dumped, the
-- program's 16-bit type or false.
local function probes_text(config, context, header, found, own)
    local sizes = ("PROBED_KERNELS = %d, CALL_COUNT = %d, MOST_RESULTS = %d, RESULT_COUNT = %d, DUMPED_RESULTS = %d%s")
        :format(#own.kernels, #own.calls, own.most, own.seen, own.dumped,
            found.watched and ", ALL_RESULTS = " .. #found.list or "")
    local halves = {}
    for i = 1, own.seen do halves[i] = graph.is_half(found.list[i].tensor) and "true" or "false" end
    return sections.render(context.template("program/probes.c"), {
        { "head", { header = text.block(header("probes.c", "step.c includes it in train-probe: values and times")),
            kernels = block_of(own.kernels), calls = block_of(own.calls), tensors = result_rows(found),
            sizes = text.block(sizes), watched = found.watched } },
        { "check", {} },
        found.watched and { "watched", {} },
        own.half and { "numbers", { half = own.half, halves = text.block(
            c_text.wrap("", "static const bool IS_HALF[RESULT_COUNT] = {", halves, "};")) } },
        context.target.device and { "device", { half = own.half, rows = row_distances(found, own.seen) } }
            or { "host", { half = own.half } },
        { "functions", { name = text.ident(config.name), macros = block_of(own.macros), watched = found.watched,
            device = context.target.device or false } },
    })
end

--- probes.h and probes.c, in a map of files. `kernels`: all that step.c calls, in its order.
function probe.render(g, config, context, kernels, header, files)
    local found = { real = g.real, list = {}, number = {}, compared = {}, results = {},
        watched = watch.possible(config, context.target) }
    number_results(kernels, false, found)
    local dumped = #found.list
    number_results(kernels, true, found)
    local seen = #found.list
    if found.watched then number_compared(kernels, found) end
    local rows, macros, known, most = {}, {}, {}, 1
    for i, kernel in ipairs(kernels) do
        local at = kernel.at or kernel.node and kernel.node.at or "the boundary"
        rows[i] = ("{%s, %s, %d, %d},"):format(text.string(kernel.name).text, text.string(at).text,
            kernel.flops or 0, kernel.bytes or 0)
        if not kernel.fn then
            macros[#macros + 1] = macro_of_boundary(kernel, i, context.target.worker)
        elseif not known[kernel.fn] then
            local results = #results_of(found, kernel)
            known[kernel.fn], most = true, math.max(most, results)
            macros[#macros + 1] = macro_of(kernel.fn.name, results, context.target.worker)
        end
    end
    local name, half = text.ident(config.name), gradients.half(g)
    files:set("probes.h", context.template("program/probes.h")("probes", { name = name,
        guard = text.ident(config.name:upper() .. "_PROBES_H"),
        header = text.block(header("probes.h", "what train-probe has beyond train")) }).text)
    files:set("probes.c", probes_text(config, context, header, found, {
        kernels = rows, calls = call_rows(g, kernels, found), most = most, macros = macros, dumped = dumped,
        seen = seen, half = half and text.ident(half) or false }))
    if found.watched then watch.render(g, config, context, header, files, found.list) end
end

return probe
