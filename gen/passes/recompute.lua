-- recompute: recomputes the chosen values in the backward pass instead of keeping them.
--
--   forward h: a = relu(x)             backward h: a' = relu(x)      (clone)
--   backward h: d = dx(a)                          d  = dx(a')
--
-- A clone precedes its first reader. An input of a clone is cloned too if it is chosen, else it is kept. The same
-- node gives the same bits, so results do not change.
--
-- Chosen are the values whose name, or the path of whose layer, fits config.recompute, a list of globs; a name is also
-- that which the value had before its loop was divided. Or those of a depth that a memory budget needs:
--   "light"    results of few operations: all but products, attention and similar ops
--   "blocks"   all values that only their own block reads, a numbered block (h.3, layer1.0) or a layer of `times`;
--              outside blocks as "light"
local diag = require "base.diag"
local glob = require "base.glob"
local graph = require "graph.graph"
local ordered = require "base.ordered"

local recompute = { name = "recompute", optional = true,
    doc = "values computed again instead of kept" }

-- Operations per element of a result, up to which it is cheap to recompute.
local LIGHT = 32

local function is_light(config, node)
    local cost = config.ops[node.op].cost
    if not cost then return true end       -- pointwise
    local elements = 0
    for _, out in ipairs(graph.writes(node)) do elements = elements + graph.elements(out.tensor.shape) end
    return cost(node).flops <= LIGHT * elements
end

-- The block of a node: its region, or its path up to the last number.
local function block_of(node)
    if node.scope or node.op == "times" then return node.scope end
    return node.path:match("^(.*%.%d+)%.") or node.path:match("^(.*%.%d+)$")
end

-- Values that nodes of another block or of the evaluation read.
local function read_elsewhere(g)
    local found = {}
    for _, body in ipairs { g.forward, g.evaluation } do
        graph.walk(body, function(node)
            for _, t in ipairs(graph.reads(node)) do
                if t.def and t.kind == "value" and block_of(t.def) ~= block_of(node) then found[t] = true end
            end
        end)
    end
    return found
end

-- Whether a glob fits the name of a value or the path of its layer, or those of a value in whose place it stands.
local function fits(pattern, tensor)
    for _, part in ipairs(tensor.parts or {}) do
        if glob.matches(pattern, part.name) or glob.matches(pattern, part.path) then return true end
    end
    return glob.matches(pattern, tensor.name) or glob.matches(pattern, tensor.def.path)
        or tensor.whole_name ~= nil and glob.matches(pattern, tensor.whole_name)
end

-- Whether a value is recomputed. Ops marked `computed_once` are never recomputed: they are at the end of the forward
-- pass, where nothing is gained. Copies in another type always are.
local function chosen(config, tensor)
    local node = (tensor.rounds or tensor).def
    if not config.is_forward[tensor] or config.ops[node.op].computed_once then return false end
    if tensor.cast then return true end
    if config.recompute_depth then
        local whole = config.recompute_depth == "blocks" and block_of(node)
        if whole then return not config.elsewhere[tensor] end
        return is_light(config, node)
    end
    for _, pattern in ipairs(config.recompute) do
        if fits(pattern, tensor) then return true end
    end
    return false
end

local function clone(g, config, tensor, scope, made, list)
    if made[tensor] then return made[tensor] end
    local node = tensor.def
    local copy = ordered.copy(node, { ins = {}, outs = {}, scope = scope,
        why = "computed again, not kept" })
    for _, name in ipairs(node.signature.ins) do
        local t = node.ins[name]
        if t and t.scope == tensor.scope and chosen(config, t) then
            t = clone(g, config, t, scope, made, list)
        end
        copy.ins[name] = t
    end
    for _, name in ipairs(node.signature.outs) do
        local out = node.outs[name]
        if out then
            local t = graph.tensor(g, { name = out.tensor.name .. "_again", shape = out.tensor.shape,
                dtype = out.tensor.dtype, kind = "value", at = node.at, def = copy, scope = scope })
            copy.outs[name] = { tensor = t }
            made[out.tensor] = t
        end
    end
    list[#list + 1] = copy
    graph.decide(g, tensor.name, "recomputed", config.recompute_depth
        and ('memory: recompute has the depth "%s"'):format(config.recompute_depth) or "memory: recompute names it")
    return made[tensor]
end

-- A backward body with clones before their first readers. scope: the region of the body; forward_scope: the forward
-- region that it is the reverse of.
local function with_clones(g, config, body, scope, forward_scope)
    local made, list = {}, {}
    for _, node in ipairs(body) do
        if node.op == "times" and node.reverse_of then
            node.body = with_clones(g, config, node.body, node, node.reverse_of)
        else
            graph.walk({ node }, function(reader)      -- clones for a loop over rows precede the loop
                for _, name in ipairs(reader.signature and reader.signature.ins or {}) do
                    local t = reader.ins[name]
                    if t and t.scope == forward_scope and chosen(config, t) then
                        reader.ins[name] = clone(g, config, t, scope, made, list)
                    end
                end
            end)
        end
        list[#list + 1] = node
    end
    return list
end

-- The names of values as the spec's layers give them, each once.
local function names_of(tensors)
    local names, known = {}, {}
    for _, tensor in ipairs(tensors) do
        local name = tensor.whole_name or tensor.name
        if not known[name] then names[#names + 1] = name end
        known[name] = true
    end
    return names
end

local function check_names(config, tensors)
    for _, pattern in ipairs(config.recompute) do
        local taken = ordered.collect(tensors, function(tensor) return fits(pattern, tensor) and tensor or nil end)
        if #taken == 0 then
            local names = names_of(tensors)
            diag.fail(config.memory_at, ("memory: no value fits '%s'"):format(pattern),
                { found = pattern, notes = { "values: " .. table.concat(names, ", ", 1,
                    math.min(#names, 12)) .. (#names > 12 and ", ..." or "") } })
        end
    end
end

function recompute.run(g, config)
    if #config.recompute == 0 and not config.recompute_depth then return true end
    local is_forward, tensors = {}, {}
    graph.walk(g.forward, function(node)
        for _, out in ipairs(graph.writes(node)) do
            if out.tensor.kind == "value" then     -- not the sums of a cycle, which ops add to
                is_forward[out.tensor] = true
                if not out.tensor.cast then tensors[#tensors + 1] = out.tensor end
            end
        end
    end)
    check_names(config, tensors)
    local inner = ordered.copy(config)
    inner.is_forward, inner.elsewhere = is_forward, read_elsewhere(g)
    g.backward = with_clones(g, inner, g.backward, nil, nil)
end

return recompute
