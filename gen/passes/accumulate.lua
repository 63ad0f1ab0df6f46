-- accumulate: with accum = "kahan" the sum over the micro-steps is a step of its own, compensated.
--
--   d_w = linear_dw(d_y, x)   ->   d_w_micro = linear_dw(d_y, x)            of this micro-step alone
--                                  d_w, residue = accumulate(d_w_micro)     acc: first
--
-- It stands behind the last writer of the gradient, in the scope of the parameter, so that the gradient of a
-- micro-step is a value like others, whose memory is free again behind it. The residue lies over the flat space.
-- Where no cycle has two micro-steps there is nothing to add, and kernels write the gradient itself.
local graph = require "graph.graph"

local accumulate = { name = "accumulate", doc = "sums over the micro-steps, with what they round off" }

local function writes(node, gradient)
    local found = false
    graph.walk({ node }, function(inner)
        for _, out in ipairs(graph.writes(inner)) do found = found or out.tensor == gradient end
    end)
    return found
end

-- Lets the writers of a gradient write `part` instead.
local function rename(body, gradient, part)
    graph.walk(body, function(node)
        for _, out in ipairs(graph.writes(node)) do
            if out.tensor == gradient then out.tensor = part end
        end
    end)
    part.def, gradient.def = gradient.def, nil
end

local function add(g, b, body, scope, param)
    local gradient, last = param.gradient, nil
    for i, node in ipairs(body) do
        if writes(node, gradient) then last = i end
    end
    local part = graph.tensor(g, { name = gradient.name .. "_micro", shape = param.shape, dtype = gradient.dtype,
        kind = "value", at = param.at, scope = scope, wide = true })
    rename(body, gradient, part)
    param.residue = graph.tensor(g, { name = "residue_" .. param.value.name, shape = param.shape,
        dtype = gradient.dtype, kind = "state", at = param.at, param = param, scope = param.region })
    b.body, b.scope, b.path, b.at = {}, scope, {}, param.at
    local node = b:node("accumulate", { x = part })
    node.outs = { y = { tensor = gradient, acc = { first = true, regions = {} } },
        residue = { tensor = param.residue } }
    gradient.def = node
    table.insert(body, last + 1, node)
end

-- The gradients of the parameters of a forward scope, in the body that is its reverse.
local function add_all(g, b, body, forward, scope)
    for _, node in ipairs(body) do
        if node.op == "times" and node.reverse_of then add_all(g, b, node.body, node.reverse_of, node) end
    end
    for _, param in ipairs(g.params) do
        if param.gradient and param.region == forward then add(g, b, body, scope, param) end
    end
end

function accumulate.run(g, config)
    g.residues = config.accum == "kahan" and config.largest > 1
    if g.residues then add_all(g, config.builder, g.backward, nil, nil) end
end

return accumulate
