-- parts: sums over many rows on a target that computes them in blocks side by side: first the sums of parts of the
-- rows, then the sum of the parts in their order. The shape alone says how many parts (config.parts), so all devices
-- have the same bits.
--
--   d_bias (768) = column_sum(dy (32768, 768))   ->   d_bias_parts (64, 768) = column_sum(dy), 64 parts
--                                                     d_bias = column_sum(d_bias_parts)
--
-- The gradient of a convolution's weight is in parts on all targets; there a target may have another number of them.
-- Where one part is all, a target may write the gradient in the order of the weight at once (config.whole):
--
--   part = conv2d_dw(dy, x)         ->   d_weight = conv2d_dw_whole(dy, x)
--   d_weight = conv2d_dw_sum(part)
local build = require "graph.build"
local graph = require "graph.graph"
local ordered = require "base.ordered"

local parts = { name = "parts", doc = "sums over many rows in parts", optional = true }

-- The node that sums the parts of a node's rows, and the node that adds the parts to its result.
local function split(g, b, node, count)
    local y = node.outs.y
    b.body, b.scope, b.path, b.at = {}, node.scope, {}, node.at
    local part = b:value(node.op, node.ins, ordered.copy(node.attrs, { parts = count }), y.tensor.name .. "_parts")
    part.dtype, part.keep_full = g.real, true
    local sum = b:node("column_sum", { x = part })
    g.tensors[#g.tensors] = nil         -- it writes the node's own result
    sum.outs = node.outs
    if y.tensor.def == node then y.tensor.def = sum end
    graph.decide(g, y.tensor.name, count .. " parts", "rows are summed in blocks side by side")
    return b.body
end

-- Gives a node conv2d_dw this number of parts, and the node behind it that adds them up.
local function recut(g, body, node, count)
    local y = node.outs.y.tensor
    node.size.N, y.shape = count, table.move(y.shape, 2, #y.shape, 2, { count })
    for _, sum in ipairs(body) do
        if sum.op == "conv2d_dw_sum" and sum.ins.partial == y then sum.size.N = count end
    end
    graph.decide(g, y.name, count .. " parts", "places are summed in blocks side by side")
end

-- Lets a node conv2d_dw write what the node behind it, `sum`, makes of its one part; false if it cannot.
local function write_whole(g, config, node, sum)
    local part = node.outs.y.tensor
    if node.size.N > 1 or not (config.whole and config.whole(node, config.ops[node.op])) or not sum
        or sum.ins.partial ~= part then return false end
    local op = config.ops.conv2d_dw_whole
    node.op, node.signature, node.outs = op.name, op.signature, sum.outs
    node.size = build.sizes(node, op)
    local y = node.outs.y.tensor
    if y.def == sum then y.def = node end
    part.def = nil
    graph.decide(g, y.name, "one part", "it is written in the order of the weight")
    return true
end

-- Splits or joins the nodes of a body; false if there is none.
local function change_all(g, config, body)
    local found, joined = false, nil
    local nodes = table.move(body, 1, #body, 1, {})
    for i = #body, 1, -1 do body[i] = nil end
    for i, node in ipairs(nodes) do
        if node.op == "times" then found = change_all(g, config, node.body) or found end
        local count = not node.run and config.parts[node.op] and config.parts[node.op](node, config.ops[node.op])
        local made = { node }
        if node == joined then made = {}
        elseif count and node.op == "conv2d_dw" then recut(g, nodes, node, count)
        elseif count and count > 1 then made = split(g, config.builder, node, count)
        elseif node.op == "conv2d_dw" and write_whole(g, config, node, nodes[i + 1]) then joined = nodes[i + 1] end
        for _, each in ipairs(made) do body[#body + 1] = each end
        found = found or (count or 1) > 1 or joined ~= nil
    end
    return found
end

function parts.run(g, config)
    return not change_all(g, config, g.backward)
end

return parts
