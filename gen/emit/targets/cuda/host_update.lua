-- host_update: update.c of a program for a device with parameters in host memory (emit/boundary/placed.lua). Nodes
-- `update` of g.boundary go over the parts that the device updates; here stand the same rules in C, as the C target
-- has them, and loops over all other parts.
local c = require "emit.targets.c.c"
local graph = require "graph.graph"
local math_file = require "emit.targets.c.math"
local ordered = require "base.ordered"
local placed = require "emit.boundary.placed"
local ranges = require "emit.boundary.ranges"
local sections = require "emit.program.sections"
local step = require "emit.program.step"
local text = require "base.text"
local update = require "emit.boundary.update"

local host_update = {}

-- The kernels have names of their own beside the launches of those of the device.
local PREFIX = "host_"

-- The call of a kernel over a part, with the parameters that it updates.
local function update_call(g)
    return function(kernel, pad, target, behind)
        local list = ranges.arguments(g, kernel, target)
        table.insert(list, 1, target.step_of(kernel))
        return ("%s// %s\n"):format(pad, ranges.covered(kernel.node.attrs.range))
            .. target.wrap(pad, kernel.name .. "(", list, ");" .. behind)
    end
end

-- Behind the update of a part.
local function done()
    return { op = "values_done", ins = {}, outs = {}, signature = { ins = {}, outs = {} }, kernel = {
        print = function(_, pad, _, behind) return pad .. "values_done(w, m, r);" .. behind end } }
end

-- The loops of updates over the parts of the host.
local function loops_of(g, updates, kernels)
    local by_name = {}
    for _, kernel in ipairs(kernels) do by_name[kernel.name] = kernel end
    return ordered.collect(updates, function(region)
        local own = ordered.copy(region, { part = "on_host", fetched = placed.is_mixed(g) })
        own.body = ordered.collect(region.body, function(node)
            local copy = ordered.copy(node, { scope = own, barrier = false })
            copy.kernel = ordered.copy(by_name[PREFIX .. node.kernel.name], { node = copy, print = update_call(g) })
            return copy
        end)
        if own.fetched then own.body[#own.body + 1] = done() end
        return own
    end)
end

--- Lets the updates of g.boundary go over what the device updates; if that is nothing, they are left out. Returns their
--- loops.
function host_update.part(g)
    local rest, updates = {}, {}
    for _, region in ipairs(g.boundary) do
        graph.walk(region.body or {}, function(node)
            if node.attrs and node.attrs.part then region.part = "on_device" end
        end)
        table.insert(region.part == "on_device" and updates or rest, region)
    end
    if placed.updates_all(g) then g.boundary = rest end
    return updates
end

--- update.c.
function host_update.render(g, config, context, header)
    local own = ordered.copy(context, { target = c, kernel_prefix = PREFIX })
    local kernels = update.functions(g, config, own)
    local functions = table.concat(ordered.collect(kernels, function(kernel) return kernel.text end), "\n")
    local shared = math_file.render(functions, own, function() return "" end) or ""
    return sections.render(context.template("program_cuda/update.c"), {
        { "head", { header = text.block(header("update.c",
            ("the host's part of an update of \"%s\"; part of step.c"):format(config.name))) } },
        { "kernels", { kernels = text.block(((shared .. "\n" .. functions):gsub("^\n+", ""):gsub("\n+$", ""))) } },
        placed.is_mixed(g) and { "transfers", {} },
        { "update", { calls = step.lines(loops_of(g, context.host_updates, kernels), c), mixed = placed.is_mixed(g) } },
    })
end

return host_update
