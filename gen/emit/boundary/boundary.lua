-- boundary: the kernels and calls of g.boundary (passes/update.lua).
local batchnorm = require "emit.kernels.batchnorm"
local clip = require "emit.boundary.clip"
local graph = require "graph.graph"
local kernels = require "emit.kernels.kernels"
local ordered = require "base.ordered"
local orthogonal = require "emit.boundary.orthogonal"
local ranges = require "emit.boundary.ranges"
local states = require "emit.boundary.states"
local update = require "emit.boundary.update"

local boundary = {}

-- The call of a kernel over a run, with the parameters that an update covers.
local function run_call(g)
    return function(kernel, pad, target, behind)
        local list, a = ranges.arguments(g, kernel, target), kernel.node.attrs
        table.insert(list, 1, target.step_of(kernel))
        local comment = a.part == "" and ("%s// %s\n"):format(pad, ranges.covered(a.range)) or ""
        return comment .. target.wrap(pad, kernel.name .. "(", list, ");" .. behind)
    end
end

-- The call of an iteration's function, or of the polynomial in it.
local function call(kernel, pad, target, behind)
    local node, list = kernel.node, { kernel.first }
    for _, name in ipairs(kernel.operands) do
        list[#list + 1] = target.pointer(node.outs[name] and node.outs[name].tensor or node.ins[name])
    end
    list[#list + 1] = node.attrs.side and tostring(node.attrs.side)
    return target.wrap(pad, kernel.name .. "(", list, ");" .. behind)
end

-- The call of what only one worker, or the host, does.
local function service_call(kernel, pad, target, behind)
    local service = target.services[kernel.node.op]
    if not service then return nil end
    local text_of = service.call
    if type(text_of) == "function" then text_of = text_of(kernel.node) end
    return pad .. text_of .. behind .. (service.stops and "\n" .. pad .. service.stops or "")
end

-- A kernel over runs that is no part of a rule; over, what: as in update.render.
local function make(g, config, context, kernel, over, what)
    return update.render(g, ordered.copy({ section = "boundary", hoisted = {}, named = ordered.map(),
        at = "the boundary" }, kernel), config, context, kernel.name, over, what)
end

-- The kernel that measures the gradient.
local function measure_kernel(g, config, context)
    local elements, calls = 0, 0
    graph.walk(g.boundary, function(node)
        if node.op == "gradient_partials" then
            local region = node.scope
            elements = elements + node.attrs.range.n * (region and region.count or 1)
            calls = calls + (region and region.count or 1)
        end
    end)
    local flops, bytes = clip.work(g, config, elements // calls)
    return make(g, config, context, { name = "gradient_partials", flops = flops, bytes = bytes,
        operands = clip.operands(g, config), reads_step = clip.weights_first(g, config) }, "tiles",
        clip.measure(g, config, context.target))
end

-- The kernel that gives trained parameters and their averages each other's places.
local function exchange_kernel(g, config, context)
    return make(g, config, context, { name = "exchange", operands = { { "w", "real *run_w" },
        { "state.ema", "real *run_ema" } } }, "tiles", { tile = update.TILE })
end

-- Lets all nodes of an op call this kernel.
local function share(g, kernel, op, print)
    graph.walk(g.boundary, function(node)
        if node.op == op then node.kernel = ordered.copy(kernel, { node = node, print = print }) end
    end)
end

-- The work of the average call of each function, for `train-probe --profile`.
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
    return { name = node.attrs.iteration.name, node = node, print = call, first = target.worker .. ", m",
        operands = { "x", "y", "gram", "square" } }
end

-- How the calls of all other nodes are printed.
local function set_calls(g, config, target)
    graph.walk(g.boundary, function(node)
        local service = target.services[node.op]
        if node.fence then node.kernel = { node = node, print = service_call, name = service and service.kernel } end
        if node.op == "orthogonalize" then node.kernel = iteration_kernel(node, target) end
        if node.attrs and node.attrs.part then
            node.kernel.print, node.kernel.at = run_call(g), config.optimizer.at
        end
    end)
    for _, f in ipairs(g.iterations) do
        for _, node in ipairs(f.region.body) do
            if node.op == "polynomial" then node.kernel.print, node.kernel.first = call, target.worker end
        end
    end
end

--- All functions that g.boundary calls: { measure, updates, iterations, exchange }, lists but for the first and the
--- last; each node gets its record: { name, node, operands, print(kernel, pad, target, behind), flops, bytes }.
function boundary.kernels(g, config, context)
    local target = context.target
    local found = { measure = measure_kernel(g, config, context), updates = update.kernels(g, config, context) }
    found.iterations = orthogonal.kernels(g, config, context, function(node)
        return kernels.make(node, "boundary", context)
    end)
    if states.exchanged(g, target) then found.exchange = exchange_kernel(g, config, context) end
    share(g, found.measure, "gradient_partials", run_call(g))
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
