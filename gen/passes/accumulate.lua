-- accumulate: sums gradients over micro-steps by nodes of their own: with compensation for accum = "kahan", rounded
-- to 16 bits for accum = "bf16".
--
--   d_w = linear_dw(d_y, x)   ->   d_w_micro = linear_dw(d_y, x)            of this micro-step alone
--                                  d_w, residue = accumulate(d_w_micro)     acc: first
--                                  d_w bf16 = accumulate_half(d_w_micro)    the same with accum = "bf16"
--
-- The node follows the last writer of the gradient, in the scope of the parameter. So the gradient of one micro-step
-- is an ordinary value, and its memory is free after the node. The residue is an array over the flat space.
-- If no cycle has two micro-steps, there is nothing to compensate, and kernels write the gradient itself.
local diag = require "base.diag"
local graph = require "graph.graph"
local ordered = require "base.ordered"

local accumulate = { name = "accumulate", doc = "sums over the micro-steps, with what they round off" }

-- The writers of each gradient in a body, as { outs, last }: all Outs of the gradient, those inside loops too, and the
-- last node of the body that has one.
local function writers_of(body)
    local writers = {}
    for _, node in ipairs(body) do
        graph.walk({ node }, function(inner)
            for _, out in ipairs(graph.writes(inner)) do
                if out.tensor.kind == "gradient" then
                    local found = writers[out.tensor] or { outs = {} }
                    writers[out.tensor], found.last = found, node
                    found.outs[#found.outs + 1] = out
                end
            end
        end)
    end
    return writers
end

-- Makes the node that adds `part` to the gradient; the node is the gradient's first writer.
local function sum_of(g, b, param, part, config)
    local acc = { first = true, regions = {} }
    if config.accum == "kahan" then
        param.residue = graph.tensor(g, { name = "residue_" .. param.value.name, shape = param.shape,
            dtype = param.gradient.dtype, kind = "state", at = param.at, param = param, scope = param.region })
        local node = b:node("accumulate", { x = part })
        node.outs = { y = { tensor = param.gradient, acc = acc }, residue = { tensor = param.residue } }
        return node
    end
    for _, member in ipairs(graph.members(param)) do member.gradient.dtype = "bf16" end
    param.gradient.dtype = "bf16"
    local node = b:node("accumulate_half", { x = part, micro = config.stochastic and g.micro or nil },
        { name = "sum of " .. param.name })
    node.outs = { y = { tensor = param.gradient, acc = acc } }
    return node
end

-- Lets the writers of a parameter's gradient write a value instead; the node that adds the value to the gradient.
local function add(g, b, writers, scope, param, config)
    local gradient = param.gradient
    local part = graph.tensor(g, { name = gradient.name .. "_micro", shape = param.shape, dtype = gradient.dtype,
        kind = "value", at = param.at, scope = scope, keep_full = true })
    for _, out in ipairs(writers.outs) do out.tensor = part end
    b.body, b.scope, b.path, b.at = {}, scope, {}, param.at
    local node = sum_of(g, b, param, part, config)
    part.def, gradient.def = gradient.def, node
    return node
end

-- Adds sums for all parameters of a forward scope to the body that is its reverse.
local function add_all(g, config, body, forward, scope)
    for _, node in ipairs(body) do
        if node.op == "times" and node.reverse_of then add_all(g, config, node.body, node.reverse_of, node) end
    end
    local writers, sums = writers_of(body), {}
    for _, param in ipairs(graph.units(g)) do
        if param.gradient and param.region == forward then
            local found = writers[param.gradient]
            sums[found.last] = sums[found.last] or {}
            table.insert(sums[found.last], add(g, config.builder, found, scope, param, config))
        end
    end
    local nodes = table.move(body, 1, #body, 1, {})
    for i = #body, 1, -1 do body[i] = nil end
    for _, node in ipairs(nodes) do
        body[#body + 1] = node
        for _, sum in ipairs(ordered.reversed(sums[node] or {})) do body[#body + 1] = sum end
    end
end

function accumulate.run(g, config)
    g.residues, g.half_sums = config.accum == "kahan" and config.largest > 1, config.accum == "bf16"
    for _, param in ipairs(g.half_sums and g.params or {}) do
        if param.collected then
            diag.fail(param.at, ('batchnorm: running = "cycle" together with precision { accum = "bf16" } is not '
                .. "possible: its sums lie beside the gradient, in f32; expected accum = \"f32\" or \"kahan\""), {})
        end
    end
    if not (g.residues or g.half_sums) then return true end
    add_all(g, config, g.backward, nil, nil)
end

return accumulate
