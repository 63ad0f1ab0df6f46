-- The target trace, for a test: no program, but the calls that a cycle makes, one a line. Kernels are those of the C
-- target, of which nothing is written; a test drops this folder into a copy of gen/emit/targets.
local c_target = require "emit.targets.c.target"
local graph = require "graph.graph"
local ordered = require "base.ordered"

-- "writes d_w" and "adds to d_w" for the gradients of a node, where the role adds.
local function effects(node, role)
    return ordered.collect(graph.writes(node), function(out)
        if not out.acc then return nil end
        local adds = not out.acc.first or out.tensor.kind == "gradient" and role.adds
        return (adds and ", adds to " or ", writes ") .. out.tensor.name
    end)
end

local function add_calls(lines, body, role, pad)
    for _, node in ipairs(body) do
        if node.op == "times" then
            lines[#lines + 1] = ("%s%d times:"):format(pad, node.count)
            add_calls(lines, node.body, role, pad .. "    ")
        else
            lines[#lines + 1] = pad .. node.kernel.name .. table.concat(effects(node, role))
        end
        for _, bucket in ipairs(role.reduces and node.completes or {}) do
            lines[#lines + 1] = ("%sstart collective %d"):format(pad, bucket)
        end
    end
end

local function add_section(lines, title, body, role)
    lines[#lines + 1] = "  " .. title
    add_calls(lines, body, role or {}, "    ")
end

-- Calls of the boundary that are no kernels, in words.
local SERVICES = { small_sum = "sum loss, weight and rows over the ranks", handler = "call the handler",
    sum_up = "make the mean of the gradient known", norm_sum = "sum the norm over the ranks" }

-- "update_all of fc.weight writes w, m": the parameters where the node knows them, the arrays that it writes.
local function boundary_call(node)
    local name = SERVICES[node.op] or node.kernel.name or node.op
    local covers = node.attrs.part and node.attrs.range.covers
    if covers then
        name = ("%s of %s"):format(name, covers[1].name)
            .. (#covers > 1 and " .. " .. covers[#covers].name or "")
    end
    local arrays = ordered.collect(graph.writes(node), function(out) return out.tensor.name end)
    if #arrays == 0 or SERVICES[node.op] then return name end
    return name .. " writes " .. table.concat(arrays, ", ")
end

local function add_boundary(lines, g, body, pad)
    for _, node in ipairs(body) do
        lines[#lines + 1] = node.barrier and pad .. "all workers wait" or nil
        if node.op == "times" then
            lines[#lines + 1] = node.part and ("%s%s parts:"):format(pad, node.part)
                or ("%s%d times:"):format(pad, node.count)
            add_boundary(lines, g, node.body, pad .. "    ")
        elseif node.op == "buckets_finish" then
            for i, collective in ipairs(g.collectives) do
                lines[#lines + 1] = ("%swait for collective %d: %s of %d elements"):format(pad, i, collective.kind,
                    collective.n)
            end
        else
            lines[#lines + 1] = pad .. boundary_call(node)
        end
        local iteration = node.attrs and node.attrs.iteration
        if iteration then add_boundary(lines, g, { iteration.region }, pad .. "    ") end
        lines[#lines + 1] = node.fence and pad .. "all workers wait" or nil
    end
end

-- The roles of the micro-steps of a cycle of so many.
local function role_names(micro_steps)
    if micro_steps == 1 then return { "only" } end
    local names = { "first" }
    for i = 2, micro_steps - 1 do names[i] = "next" end
    names[micro_steps] = "last"
    return names
end

local function trace(g)
    local roles, lines = {}, {}
    for _, role in ipairs(g.roles) do roles[role.name] = role end
    for _, micro_steps in ipairs(g.sizes) do
        lines[#lines + 1] = ("cycle of %d"):format(micro_steps)
        for _, name in ipairs(role_names(micro_steps)) do
            add_section(lines, "forward", g.forward)
            add_section(lines, "backward " .. name, g.backward, roles[name])
        end
        lines[#lines + 1] = "  boundary"
        add_boundary(lines, g, g.boundary, "    ")
        add_calls(lines, g.views, {}, "    ")
    end
    return table.concat(lines, "\n") .. "\n"
end

return ordered.copy(c_target, {
    doc = "a trace of the calls of a cycle, for a test",
    runs = false, library = false, kernels_file = "trace.txt",
    render = function(g, _, _, _, _, _, files) files:set("trace.txt", trace(g)) end,
})
