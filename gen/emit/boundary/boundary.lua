-- boundary: the kernels and calls of g.boundary (passes/update.lua).
local batchnorm = require "emit.kernels.batchnorm"
local clip = require "emit.boundary.clip"
local expr = require "base.expr"
local graph = require "graph.graph"
local kernels = require "emit.kernels.kernels"
local ordered = require "base.ordered"
local orthogonal = require "emit.boundary.orthogonal"
local text = require "base.text"
local update = require "emit.boundary.update"

local boundary = {}

-- The parameters that an update covers, for its comment.
local function covered(params)
    local first, last = params[1].name:gsub("%%d", "*"), params[#params].name:gsub("%%d", "*")
    if #params == 1 then return first end
    return ("%s .. %s, %d tensors"):format(first, last, #params)
end

-- What a call hands over for an item of its kernel: the address of an operand, or a number.
local function argument(node, item, target, real)
    local out = node.outs[item]
    local t = out and out.tensor or node.ins[item]
    if t then return target.pointer(t) end
    local number = node.attrs.numbers[item] or error(node.op .. ": no operand '" .. item .. "'")
    return math.type(number) == "float" and expr.literal(number, real) or tostring(number)
end

--- The call of a kernel of the boundary; `behind` follows on its line.
function boundary.call(kernel, pad, target, behind)
    local node = kernel.node
    local list = { kernel.first or target.step_of(kernel.reads_step) }
    for _, item in ipairs(kernel.items) do list[#list + 1] = argument(node, item, target, kernel.real) end
    local covers = node.attrs.part == "" and node.attrs.covers
    local comment = covers and ("%s// %s\n"):format(pad, text.comment(covered(covers)).text) or ""
    return comment .. target.wrap(pad, kernel.name .. "(", list, ");" .. behind)
end

-- The call of what only one worker, or the host, does.
local function service_call(kernel, pad, target, behind)
    local service = target.services[kernel.node.op]
    if not service then return nil end
    return pad .. service.call .. behind .. (service.stops and "\n" .. pad .. service.stops or "")
end

-- The kernel that measures the gradient, without its text, which depends on the target.
local function measure_kernel(g, config, context)
    local elements, calls = 0, 0
    graph.walk(g.boundary, function(node)
        if node.op == "gradient_partials" then
            local region = node.scope
            elements = elements + node.attrs.numbers.count * (region and region.count or 1)
            calls = calls + (region and region.count or 1)
        end
    end)
    local flops, bytes = clip.work(g, config, elements // calls)
    return { name = "gradient_partials", section = "boundary", items = clip.items(config), flops = flops, bytes = bytes,
        first = clip.writes(config) and context.target.sweep_step or context.target.worker,
        at = "the boundary", hoisted = {}, named = ordered.map() }
end

-- Lets all nodes of an op call this kernel.
local function share(g, kernel, op, call)
    graph.walk(g.boundary, function(node)
        if node.op ~= op then return end
        node.kernel = ordered.copy(kernel, { node = node, print = call or boundary.call, real = g.real })
    end)
end

-- What the average call of each function does, for `train-probe --profile`.
local function average_work(g, list)
    local work = {}
    for _, kernel in ipairs(list) do work[kernel.name] = { calls = 0, flops = 0, bytes = 0 } end
    graph.walk(g.boundary, function(node)
        local sum = node.kernel and work[node.kernel.name]
        if not sum then return end
        local n = node.scope and node.scope.count or 1
        sum.calls, sum.flops = sum.calls + n, sum.flops + n * node.kernel.flops
        sum.bytes = sum.bytes + n * node.kernel.bytes
    end)
    for _, kernel in ipairs(list) do
        local sum = work[kernel.name]
        if sum.calls > 0 then kernel.flops, kernel.bytes = sum.flops // sum.calls, sum.bytes // sum.calls end
    end
end

-- The call of an iteration's function.
local function iteration_kernel(node, target)
    return { name = node.attrs.iteration.name, node = node, print = boundary.call, first = target.worker .. ", m",
        items = { "x", "y", "gram", "square" } }
end

-- How the calls of all other nodes are printed.
local function set_calls(g, config, target)
    graph.walk(g.boundary, function(node)
        local service = target.services[node.op]
        if node.fence then node.kernel = { node = node, print = service_call, name = service and service.kernel } end
        if node.op == "orthogonalize" then node.kernel = iteration_kernel(node, target) end
        if node.attrs and node.attrs.part then
            node.kernel.print, node.kernel.real, node.kernel.at = boundary.call, g.real, config.optimizer.at
        end
    end)
    for _, f in ipairs(g.iterations) do
        for _, node in ipairs(f.region.body) do
            if node.op == "polynomial" then node.kernel.print, node.kernel.first = boundary.call, target.worker end
        end
    end
end

--- All functions that g.boundary calls: { measure, updates, iterations }, lists but the first; each node gets its
--- record: { name, node, items, print(kernel, pad, target, behind), flops, bytes }.
function boundary.kernels(g, config, context)
    local target = context.target
    local found = { measure = measure_kernel(g, config, context), updates = update.kernels(g, config, context) }
    found.iterations = orthogonal.kernels(g, config, context, function(node)
        return kernels.make(node, "boundary", context)
    end)
    share(g, found.measure, "gradient_partials")
    share(g, batchnorm.move_kernel(target), "batchnorm_move", batchnorm.move_call)
    set_calls(g, config, target)
    average_work(g, found.updates)
    for _, kernel in ipairs(found.updates) do kernel.at = config.optimizer.at end
    return found
end

--- The functions of updates and iterations as one list, in the order of the kernels' file.
function boundary.functions(found)
    local list = ordered.copy(found.updates)
    for _, kernel in ipairs(found.iterations) do
        if not kernel.fn then list[#list + 1] = kernel end       -- a product is a function of nodes
    end
    return list
end

--- Work of each function in an update: { name, flops, bytes, at }, for the plan.
function boundary.work(g)
    local list, by_name = ordered.map(), nil
    local function count(body, times)
        for _, node in ipairs(body) do
            local kernel, iteration = node.kernel, node.attrs and node.attrs.iteration
            if node.op == "times" then
                count(node.body, times * node.count)
            elseif iteration then
                count(iteration.region.body, times * iteration.steps)
            elseif kernel and kernel.name then
                by_name = list:get(kernel.name) or list:set(kernel.name, { name = kernel.name, flops = 0, bytes = 0,
                    at = kernel.at or node.at })
                by_name.flops = by_name.flops + times * (kernel.flops or 0)
                by_name.bytes = by_name.bytes + times * (kernel.bytes or 0)
            end
        end
    end
    count(g.boundary, 1)
    return ordered.collect(list.keys, function(name) return list:get(name) end)
end

return boundary
