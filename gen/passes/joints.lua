-- joints: whether linear layers can be one product, and the product: its weight and bias are joint parameters, whose
-- members lie next to each other in the flat space (passes/layout.lua).
local graph = require "graph.graph"
local groups = require "spec.groups"
local handlers = require "spec.handlers"
local layout = require "passes.layout"
local ordered = require "base.ordered"

local joints = {}

-- === what may be merged ==========================================================================

local function same_groups(config, a, b)
    local of_a, of_b = groups.runs(config, a), groups.runs(config, b)
    for i = 1, math.max(#of_a, #of_b) do
        local x, y = of_a[i], of_b[i]
        if not (x and y and x.of == y.of and x.count == y.count) then return false end
    end
    return true
end

-- Why parameters cannot lie next to each other as one; nil: they can.
local function apart(config, params, readers)
    local first = params[1]
    for i, param in ipairs(params) do
        if #readers[param.value] > 1 then return ("%d nodes read %s"):format(#readers[param.value], param.name) end
        if param.region ~= first.region then return ("only %s belongs to the loop"):format((param.region and param
            or first).name) end
        if param.frozen ~= first.frozen then return "only some are trained" end
        if not same_groups(config, param, first) then
            return ("%s and %s have different groups of the optimizer"):format(first.name, param.name)
        end
        if handlers.of(config, param) ~= handlers.of(config, first) then
            return ("%s and %s have different gradient handlers"):format(first.name, param.name)
        end
        if i < #params and graph.elements(param.shape) % layout.ALIGN ~= 0 then
            return ("%s has %d elements, no multiple of %d"):format(param.name, graph.elements(param.shape),
                layout.ALIGN)
        end
    end
end

-- The parameters of linear nodes: their weights, and their biases if they have some.
local function params_of(nodes, name)
    return ordered.collect(nodes, function(node) return node.ins[name] and node.ins[name].param end)
end

--- Why linear nodes cannot be one product; nil: they can. readers: the nodes that read each tensor.
function joints.obstacle(config, nodes, readers)
    for _, node in ipairs(nodes) do
        if node.op ~= "linear" then return "a weight is stored (in, out)" end
    end
    local weights, biases = params_of(nodes, "weight"), params_of(nodes, "bias")
    if #biases > 0 and #biases < #nodes then return "only some have a bias" end
    return apart(config, weights, readers) or apart(config, biases, readers)
end

-- === joint parameters ============================================================================

-- The common beginning of texts, up to a "." or "_" with it.
local function common_head(texts)
    local n = 0
    for i = 1, #texts[1] do
        for _, other in ipairs(texts) do
            if other:sub(i, i) ~= texts[1]:sub(i, i) then return texts[1]:sub(1, n) end
        end
        if texts[1]:find("^[._]", i) then n = i end
    end
    return texts[1]:sub(1, n)
end

-- "h.%d.attn.query_key_value.weight" of h.%d.attn.query.weight and those of key and value, "h.%d.gate_up_proj.weight"
-- of h.%d.gate_proj.weight and that of up_proj, "qkv.weight" of q.weight and those of k and v.
local function joint_name(names)
    local head = common_head(names)
    local rests = ordered.collect(names, function(name) return name:sub(#head + 1):reverse() end)
    local tail, single = common_head(rests), true
    local own = ordered.collect(rests, function(rest)
        single = single and #rest == #tail + 1
        return rest:sub(#tail + 1):reverse()
    end)
    return head .. table.concat(own, single and "" or "_") .. tail:reverse()
end

-- The joint parameter of members that lie next to each other.
local function joint_of(g, members)
    local first, rows = members[1], 0
    for _, param in ipairs(members) do rows = rows + param.shape[1] end
    local name = joint_name(ordered.collect(members, function(param) return param.name end))
    local joint = { name = name, shape = { rows, first.shape[2] }, region = first.region, count = first.count,
        first = first.first, at = first.at, frozen = first.frozen, members = members, views = {} }
    joint.value = graph.tensor(g, { name = name, shape = joint.shape, kind = "param", at = first.at, param = joint,
        scope = first.region })
    for _, param in ipairs(members) do param.joint = joint end
    g.joints[#g.joints + 1] = joint
    return joint
end

-- === one product =================================================================================

--- Calls make() with the builder set to append to a list of its own, in the place of `node`; returns what it appended.
function joints.built(b, node, make)
    b.body, b.scope, b.path, b.at, b.keep_full = {}, node.scope, {}, node.at, node.keep_full
    make()
    b.keep_full = nil
    return b.body[1]
end

--- The linear node over the joint weight of some nodes.
function joints.linear(g, b, nodes)
    local first = nodes[1]
    local weight, biases = joint_of(g, params_of(nodes, "weight")), params_of(nodes, "bias")
    local bias = biases[1] and joint_of(g, biases).value
    local node = joints.built(b, first, function()
        b:node("linear", { x = first.ins.x, weight = weight.value, bias = bias }, nil,
            { y = weight.name:gsub("%.[^.]*$", ".y") })
    end)
    local y = node.outs.y.tensor
    y.parts = ordered.collect(nodes, function(part) return { name = part.outs.y.tensor.name, path = part.path } end)
    node.path, node.why = first.path, ("%d products of one input"):format(#nodes)
    graph.decide(g, y.name, "merged", table.concat(ordered.collect(y.parts, function(part) return part.name end), ", ")
        .. " read one input")
    return node
end

return joints
