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

local function add_boundary(lines, g, config, sweeps)
    lines[#lines + 1] = "  boundary"
    for i, collective in ipairs(g.collectives) do
        lines[#lines + 1] = ("    wait for collective %d: %s of %d elements"):format(i, collective.kind, collective.n)
    end
    lines[#lines + 1] = config.mode.ranks and "    sum loss, weight and rows over the ranks" or nil
    lines[#lines + 1] = "    decide"
    for _, sweep in ipairs(sweeps) do lines[#lines + 1] = "    " .. sweep.name end
    add_calls(lines, g.views, {}, "    ")
end

-- The roles of the micro-steps of a cycle of so many.
local function role_names(micro_steps)
    if micro_steps == 1 then return { "only" } end
    local names = { "first" }
    for i = 2, micro_steps - 1 do names[i] = "next" end
    names[micro_steps] = "last"
    return names
end

local function trace(g, config, sweeps)
    local roles, lines = {}, {}
    for _, role in ipairs(g.roles) do roles[role.name] = role end
    for _, micro_steps in ipairs(g.sizes) do
        lines[#lines + 1] = ("cycle of %d"):format(micro_steps)
        for _, name in ipairs(role_names(micro_steps)) do
            add_section(lines, "forward", g.forward)
            add_section(lines, "backward " .. name, g.backward, roles[name])
        end
        add_boundary(lines, g, config, sweeps)
    end
    return table.concat(lines, "\n") .. "\n"
end

return ordered.copy(c_target, {
    doc = "a trace of the calls of a cycle, for a test",
    runs = false, library = false, kernels_file = "trace.txt",
    render = function(g, config, _, _, sweeps, _, files) files:set("trace.txt", trace(g, config, sweeps)) end,
})
