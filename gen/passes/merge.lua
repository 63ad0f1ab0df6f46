-- merge: linear layers that read one input become one product.
--
--   q = linear(x, w_q) ; k = linear(x, w_k) ; v = linear(x, w_v) ; y = attend(q, k, v)
--   ->  qkv = linear(x, w_qkv) ; y = attend(qkv)          w_qkv: the rows of w_q, then those of w_k, then those of w_v
--
-- So the backward pass has one product for the gradient of x, one for the weights, one sum for the biases. The joint
-- weight is no parameter of its own: its members lie next to each other in the flat space (passes/layout.lua), and
-- for all else (files, groups, updates) there are the members alone.
-- Merged are products whose results are read side by side:
--   queries, keys and values of an attention, also if queries and keys are turned (rotary) in between
--   values that pointwise ops lead to one pointwise op, such as gate and up in silu(gate) * up: `part` stands for the
--   columns of each, and pass fusion lets its readers read the product's result
local expr = require "base.expr"
local graph = require "graph.graph"
local joints = require "passes.joints"
local ordered = require "base.ordered"

local merge = { name = "merge", optional = true, doc = "products of one input become one" }

-- The nodes that read each tensor; the output and what loops carry has `false` among them.
local function readers_of(g)
    local readers = {}
    local function add(t, node)
        readers[t] = readers[t] or {}
        table.insert(readers[t], node)
    end
    for _, body in ipairs { g.forward, g.evaluation } do
        graph.walk(body, function(node)
            for _, t in ipairs(graph.reads(node)) do add(t, node) end
            for _, c in ipairs(node.carries or {}) do add(c.result, false) end
        end)
    end
    if g.output then add(g.output, false) end
    return readers
end

local function only_reader(t, readers)
    local list = readers[t] or {}
    return #list == 1 and list[1] or nil
end

local function is_linear(node) return node ~= nil and (node.op == "linear" or node.op == "linear_in_out") end

-- Whether linear nodes read one input.
local function of_one_input(nodes)
    for _, node in ipairs(nodes) do
        if node.ins.x ~= nodes[1].ins.x then return false end
    end
    return true
end

-- Replaces nodes of a body: with[node] is the list of nodes that stand in its place.
local function replace(body, with)
    local list = {}
    for _, node in ipairs(body) do
        local others = with[node] or { node }
        table.move(others, 1, #others, #list + 1, list)
    end
    for i = 1, math.max(#body, #list) do body[i] = list[i] end
end

-- === attention ===================================================================================

-- The linear nodes behind the queries, keys and values of an attention, and the nodes that turn the first two, if some
-- do; nil: it has others.
local function projections(attend, readers)
    if attend.op ~= "attend" or not attend.ins.key then return nil end
    local nodes, turns = {}, {}
    for i, key in ipairs { "query", "key", "value" } do
        local t = attend.ins[key]
        local def = t and t.def
        if def and def.op == "rotary" and i < 3 and only_reader(t, readers) then
            turns[i], t = def, def.ins.x
            def = t.def
        end
        if not (is_linear(def) and t.scope == attend.scope and only_reader(t, readers)) then return nil end
        nodes[i] = def
    end
    return nodes, turns
end

-- Why the nodes that turn queries and keys cannot be one.
local function turned_apart(turns)
    local q, k = turns[1], turns[2]
    if not (q or k) then return nil end
    if not (q and k) then return "only queries or only keys are turned" end
    if q.attrs.base ~= k.attrs.base or q.attrs.d ~= k.attrs.d then return "queries and keys are turned differently" end
end

-- Lets an attention read its queries, keys and values from one product.
local function merge_attention(g, b, body, attend, nodes, turns)
    local with, linear = {}, joints.linear(g, b, nodes)
    local y = linear.outs.y.tensor
    local place = {}
    for i, node in ipairs(body) do place[node] = i end
    local first = nodes[1]
    for _, node in ipairs(nodes) do
        with[node] = {}
        if place[node] < place[first] then first = node end
    end
    with[first] = { linear }
    if turns[1] then
        local q, k = turns[1], turns[2]
        local later = place[q] > place[k] and q or k
        local turn = joints.built(b, later, function()
            b:node("rotary", { x = y }, ordered.copy(q.attrs, { heads = q.attrs.heads + k.attrs.heads }),
                { y = y.name:gsub("_y$", "_turned") })
        end)
        with[q], with[k] = {}, {}
        with[later] = { turn }
        turn.path, y = later.path, turn.outs.y.tensor
    end
    attend.ins = ordered.copy(attend.ins, { query = y })
    attend.ins.key, attend.ins.value = nil, nil
    attend.size = ordered.copy(attend.size, { Q = y.shape[3] })
    attend.size.K = nil
    replace(body, with)
end

-- === pointwise readers ===========================================================================

-- Whether a gradient flows from the result of a pointwise node to its input t.
local function flows(node, t)
    local rule, variables = node.attrs.rule, node.attrs.variables
    if not rule then return false end
    local arguments = { expr.var "dy", table.unpack(variables) }
    arguments[#arguments + 1] = expr.var "y"
    local partials = table.pack(rule.entry.grad(rule.fields, table.unpack(arguments)))
    for i, v in ipairs(variables) do
        if node.ins[v.name] == t and partials[i] then return true end
    end
    return false
end

-- The pointwise nodes that lead from the result of a linear node on, as far as each value has one reader.
local function chain_of(node, readers)
    local t, list = node.outs.y.tensor, {}
    while true do
        local reader = only_reader(t, readers)
        if not (reader and reader.op == "map" and reader.scope == node.scope and flows(reader, t)) then return list end
        t, list[#list + 1] = reader.outs.y.tensor, reader
    end
end

-- The linear nodes of a body that meet in pointwise nodes, as lists of those with one input that meet in one node.
local function meetings(body, readers)
    local met, list = {}, {}
    for _, node in ipairs(body) do
        for _, reader in ipairs(is_linear(node) and chain_of(node, readers) or {}) do
            met[reader] = met[reader] or {}
            table.insert(met[reader], node)
        end
    end
    local taken = {}
    for _, meeting in ipairs(body) do
        local nodes = ordered.collect(met[meeting] or {}, function(node) return not taken[node] and node or nil end)
        if #nodes > 1 and of_one_input(nodes) then
            list[#list + 1] = nodes
            for _, node in ipairs(nodes) do taken[node] = true end
        end
    end
    return list
end

-- Lets pointwise nodes read parts of one product.
local function merge_parts(g, b, body, nodes)
    local with, linear, at = {}, joints.linear(g, b, nodes), 0
    local list = { linear }
    for i, node in ipairs(nodes) do
        local y, width = node.outs.y.tensor, node.size.N
        local part = joints.built(b, node, function()
            b:node("part", { x = linear.outs.y.tensor }, { first = at + 1, last = at + width }, { y = y.name })
        end)
        part.outs.y.tensor, y.def, with[node] = y, part, {}
        list[#list + 1], at = part, at + width
    end
    with[nodes[1]] = list
    replace(body, with)
end

-- === decisions ===================================================================================

-- Notes why products of one input stay apart. told: nodes of which that is known.
local function refuse(g, nodes, why, told)
    local names = ordered.collect(nodes, function(node)
        told[node] = true
        return node.outs.y.tensor.name
    end)
    graph.decide(g, table.concat(names, ", "), "not merged", why)
end

-- Notes the products of one input that nothing reads side by side.
local function refuse_others(g, body, told)
    local by_input = ordered.map()
    for _, node in ipairs(body) do
        if is_linear(node) and not told[node] then
            local x = node.ins.x
            table.insert(by_input:get(x) or by_input:set(x, {}), node)
        end
    end
    for _, nodes in by_input:each() do
        if #nodes > 1 then
            refuse(g, nodes, "no attention reads them as queries, keys and values, no pointwise op as its inputs", told)
        end
    end
end

local function merge_body(g, config, body, readers)
    local told = {}
    for _, node in ipairs(table.move(body, 1, #body, 1, {})) do
        if node.op == "times" then merge_body(g, config, node.body, readers) end
        local nodes, turns = projections(node, readers)
        if nodes and of_one_input(nodes) then
            local why = joints.obstacle(config, nodes, readers) or turned_apart(turns)
            if why then refuse(g, nodes, why, told)
            else merge_attention(g, config.builder, body, node, nodes, turns) end
        end
    end
    for _, nodes in ipairs(meetings(body, readers)) do
        local why = joints.obstacle(config, nodes, readers)
        if why then refuse(g, nodes, why, told) else merge_parts(g, config.builder, body, nodes) end
    end
    refuse_others(g, body, told)
end

function merge.run(g, config)
    merge_body(g, config, g.forward, readers_of(g))
    return #g.joints == 0
end

return merge
