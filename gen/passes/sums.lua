-- sums: sums over rows in a kernel that reads these rows anyway, if the target says so of its op (config.sums_rows).
--
--   d_weight = linear_dw(dy, x)                  ->   d_weight, d_bias = linear_dw(dy, x)
--   d_bias = column_sum(dy)
--
--   dx = norm_dx(dy, x, ...)                     ->   dx, parts (256, 2, 768) = norm_dx(dy, x, ...), 256 parts
--   d_weight = norm_dw(dy, x, ...)                    d_weight, d_bias = norm_sums(parts)
--   d_bias = column_sum(dy)
--
-- A block of a product has all rows of its columns. The gradient of a norm's input leaves sums of parts of the rows,
-- which norm_sums adds up in their order; the shape alone says how many parts.
local graph = require "graph.graph"
local ordered = require "base.ordered"

local sums = { name = "sums", doc = "sums over rows in kernels that read these rows", optional = true }

local function is_same_acc(a, b)
    if not (a and b) then return a == b end
    if a.first ~= b.first or #a.regions ~= #b.regions then return false end
    for k, region in ipairs(a.regions) do
        if region ~= b.regions[k] then return false end
    end
    return true
end

-- Whether a node between two places of a body reads or writes a tensor.
local function is_touched(body, from, to, tensor)
    local found = false
    local function look(node)
        for _, t in ipairs(graph.reads(node)) do found = found or t == tensor end
        for _, out in ipairs(graph.writes(node)) do found = found or out.tensor == tensor end
    end
    graph.walk(table.move(body, math.min(from, to) + 1, math.max(from, to) - 1, 1, {}), look)
    return found
end

-- The place of the node with this op that sums the rows of dy, its input `key`, and may do so at place `at` as well.
-- acc: how its result is to be added; false: in any way. changed: places whose nodes have changed already.
local function place_of(body, changed, at, op, key, dy, acc)
    for i, node in ipairs(body) do
        local y = node.op == op and node.ins[key] == dy and not (node.run or changed[i]) and node.outs.y
        if y and (acc == false or is_same_acc(y.acc, acc)) and not is_touched(body, at, i, y.tensor) then return i end
    end
end

-- Lets a node's kernel write a further result.
local function give(node, name, out)
    node.outs[name] = out
    local outs = table.move(node.signature.outs, 1, #node.signature.outs, 1, {})
    outs[#outs + 1] = name
    node.signature = ordered.copy(node.signature, { outs = outs })
end

-- Lets `maker` make the result of a node in its place.
local function replace(g, maker, node, choice, why)
    local t = node.outs.y.tensor
    if t.def == node then t.def = maker end
    graph.decide(g, t.name, choice, why)
end

-- The node norm_sums for the parts that a node norm_dx leaves.
local function sum_of(b, node, parts, weight, bias)
    b.body, b.scope, b.path, b.at = {}, node.scope, {}, node.at
    local value = graph.tensor(b.graph, { name = weight.outs.y.tensor.name .. "_parts", kind = "value",
        dtype = b.graph.real, shape = { parts, bias and 2 or 1, node.size.C }, at = node.at, def = node,
        scope = node.scope, keep_full = true })
    node.attrs = ordered.copy(node.attrs, { parts = parts })
    give(node, "parts", { tensor = value })
    local sum = b:node("norm_sums", { x = value })
    for _ in ordered.each(sum.outs) do b.graph.tensors[#b.graph.tensors] = nil end     -- it writes those of others
    sum.outs = { y = weight.outs.y, bias = bias and bias.outs.y }
    return sum
end

-- By op: (g, b, body, changed, at, told) lets the node at this place sum rows, if it can: changed[place] gets the nodes
-- that stand in the place of one that changes. told: config.sums_rows of the op.
local JOIN = {}

function JOIN.linear_dw(g, _, body, changed, at)
    local node = body[at]
    local i = place_of(body, changed, at, "column_sum", "x", node.ins.dy, node.outs.y.acc)
    if not i then return end
    give(node, "bias", body[i].outs.y)
    replace(g, node, body[i], "summed with the weight", "the product of the weight's gradient reads these rows")
    changed[i] = {}
end

JOIN.linear_in_out_dw = JOIN.linear_dw

function JOIN.norm_dx(g, b, body, changed, at, parts_of)
    local node, parts = body[at], parts_of(body[at], g.real)
    local i = parts and place_of(body, changed, at, "norm_dw", "dy", node.ins.dy, false)
    if not i or body[i].ins.x ~= node.ins.x then return end
    local k = place_of(body, changed, at, "column_sum", "x", node.ins.dy, body[i].outs.y.acc)
    local sum = sum_of(b, node, parts, body[i], body[k])
    changed[at] = { node, sum }
    for _, place in ipairs { i, k } do
        replace(g, sum, body[place], parts .. " parts", "the gradient of the norm's input reads these rows")
        changed[place] = {}
    end
end

-- Looks at the nodes of a body; false if none has changed.
local function join_all(g, config, body)
    local changed, found = {}, false
    for at, node in ipairs(body) do
        local told = config.sums_rows[node.op]
        if node.op == "times" then found = join_all(g, config, node.body) or found
        elseif told and not node.run then JOIN[node.op](g, config.builder, body, changed, at, told) end
    end
    local nodes, kept = table.move(body, 1, #body, 1, {}), {}
    for i, node in ipairs(nodes) do
        for _, each in ipairs(changed[i] or { node }) do kept[#kept + 1] = each end
        body[i] = nil
    end
    table.move(kept, 1, #kept, 1, body)
    return found or #ordered.keys(changed) > 0
end

function sums.run(g, config)
    return not join_all(g, config, g.backward)
end

return sums
