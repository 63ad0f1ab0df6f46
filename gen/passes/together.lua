-- together: nodes that each make little of what is there already, such as sums of parts, in one kernel, if the target
-- says so of their op (config.together). A node waits for more until its result, or the memory of what it reads, is
-- needed.
--
--   d_w1 = conv2d_dw_sum(parts_1)
--   ...                                  ->   ...
--   d_w2 = conv2d_dw_sum(parts_2)             d_w1, d_w2 = conv2d_dw_sum(parts_1, parts_2)
local graph = require "graph.graph"
local ordered = require "base.ordered"

local together = { name = "together", doc = "sums of parts in one kernel", optional = true }

-- Elements of what waiting nodes read, at most: 128 MB that others cannot use meanwhile.
local MOST_ELEMENTS = 1 << 25

local MOST_NODES = 32           -- their tensors are arguments of one launch

-- Makes the first of a list of nodes that of all.
local function join(nodes)
    local first = nodes[1]
    if #nodes == 1 then return first end
    local from, to = first.signature.ins[1], first.signature.outs[1]
    local ins, outs, sizes, names = {}, {}, {}, { ins = {}, outs = {} }
    for i, node in ipairs(nodes) do
        local own = i == 1 and "" or "_" .. i
        names.ins[i], names.outs[i], sizes[i] = from .. own, to .. own, node.size
        ins[names.ins[i]], outs[names.outs[i]] = node.ins[from], node.outs[to]
        local t = node.outs[to].tensor
        if t.def == node then t.def = first end
    end
    first.ins, first.outs, first.attrs = ins, outs, ordered.copy(first.attrs, { members = sizes })
    first.signature = ordered.copy(first.signature, names)
    return first
end

-- Whether a node needs what the waiting ones write, or the memory that they read.
local function needs(node, waiting)
    if node.op == "times" then return true end
    for _, t in ipairs(graph.reads(node)) do
        if waiting.written[t] then return true end
    end
    for _, out in ipairs(graph.writes(node)) do
        if waiting.written[out.tensor] or waiting.read[out.tensor] then return true end
    end
    return false
end

local function empty() return { nodes = {}, read = {}, written = {}, elements = 0 } end

local function join_all(config, body)
    local list, waiting, found = table.move(body, 1, #body, 1, {}), {}, false
    for i = #body, 1, -1 do body[i] = nil end
    local function flush(op)
        if #waiting[op].nodes == 0 then return end
        body[#body + 1], found = join(waiting[op].nodes), found or #waiting[op].nodes > 1
        waiting[op] = empty()
    end
    for op in ordered.each(config.together) do waiting[op] = empty() end
    for _, node in ipairs(list) do
        for op in ordered.each(waiting) do
            if needs(node, waiting[op]) then flush(op) end
        end
        local own = waiting[node.op]
        if node.op == "times" then found = join_all(config, node.body) or found end
        if not own or node.run then
            body[#body + 1] = node
        else
            local x, y = node.ins[node.signature.ins[1]], node.outs[node.signature.outs[1]].tensor
            own.nodes[#own.nodes + 1], own.read[x], own.written[y] = node, true, true
            own.elements = own.elements + graph.elements(x.shape)
            if own.elements > MOST_ELEMENTS or #own.nodes == MOST_NODES then flush(node.op) end
        end
    end
    for op in ordered.each(waiting) do flush(op) end
    return found
end

function together.run(g, config)
    if #ordered.keys(config.together) == 0 then return true end
    local found = join_all(config, g.forward)
    return not (join_all(config, g.backward) or found)
end

return together
