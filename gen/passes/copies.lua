-- copies: leaves out nodes that move no element, for pass fusion. Their readers read the input where it lies; sizes and
-- views of the readers stay.
--
--   y (64, 784) = reshape(x (64, 1, 28, 28)) ; z = linear(y, w)   ->   z = linear(x, w)
--
-- Pointwise nodes also read the parts of a joint product's result where they lie, through the view of the part:
--
--   gate = part(gate_up, columns 1 .. 352) ; z = silu(gate)   ->   z = silu(gate_up[...])
--
-- Some values keep their nodes: the output, the losses, those that loops begin with or hand on, those that several
-- nodes or micro-steps write, and those of nodes that see only some rows.
local graph = require "graph.graph"
local ordered = require "base.ordered"

local KINDS = { value = true, input = true }

-- Values that must stay, those of them that cannot be read for another either, and how often each tensor is written.
local function look(g)
    local stays, apart, writers = {}, {}, {}
    for _, t in ipairs { g.output or false, g.d_output or false, g.loss.rows, g.loss.target, g.head and g.head.x } do
        stays[t] = true
    end
    for _, body in ipairs { g.forward, g.evaluation, g.backward } do
        graph.walk(body, function(node)
            for _, c in ipairs(node.carries or {}) do
                apart[c.init], apart[c.arg], apart[c.result] = true, true, true
            end
            for _, out in ipairs(graph.writes(node)) do
                writers[out.tensor] = (writers[out.tensor] or 0) + 1
                if out.acc or out.run then apart[out.tensor] = true end
            end
            for _, t in ipairs(node.run and graph.reads(node) or {}) do stays[t] = true end
        end)
    end
    return { stays = stays, apart = apart, writers = writers }
end

-- The input that a node only repeats, nil if there is none.
local function repeated(node)
    local list = node.statements
    local e = list and #list == 1 and list[1][2]
    local x = e and e.op == "var" and node.ins[e.name]
    local y = x and graph.result(node)
    if not x or node.views[e.name] or x.dtype ~= y.dtype or x.scope ~= y.scope and x.kind == "value" then return nil end
    return KINDS[x.kind] and graph.elements(x.shape) == graph.elements(y.shape) and x or nil
end

-- Calls f(node, name, tensor) for each input of the nodes of the passes over a micro-batch.
local function each_input(g, f)
    for _, body in ipairs { g.forward, g.evaluation, g.backward } do
        graph.walk(body, function(node)
            for _, name in ipairs(node.signature and node.signature.ins or {}) do
                if node.ins[name] then f(node, name, node.ins[name]) end
            end
        end)
    end
end

-- Lets pointwise nodes read parts of a joint product's result where they lie, through the view of the part. Parts that
-- others read too stay.
local function read_parts(g)
    local copied = {}
    each_input(g, function(node, name, t)
        local in_place = node.statements and not node.views[name]
        if t.def and t.def.op == "part" and not in_place then copied[t] = true end
    end)
    each_input(g, function(node, name, t)
        if t.def and t.def.op == "part" and not copied[t] then
            node.ins = ordered.copy(node.ins, { [name] = t.def.ins.x })
            node.views = ordered.copy(node.views, { [name] = t.def.views.x })
        end
    end)
    local function left(body)
        local list = ordered.collect(body, function(node)
            if node.op == "times" then left(node.body) end
            return (node.op ~= "part" or copied[graph.result(node)]) and node or nil
        end)
        for i = 1, #body do body[i] = list[i] end
    end
    for _, body in ipairs { g.forward, g.backward } do left(body) end
end

-- Takes such nodes out of a body; `lies`: result -> the tensor that is read in its place.
local function take_out(g, body, lies, known)
    local left = ordered.collect(body, function(node)
        if node.op == "times" then take_out(g, node.body, lies, known) end
        local x, y = repeated(node), node.statements and graph.result(node)
        x = x and (lies[x] or x)
        if not x or known.apart[x] or known.apart[y] or known.stays[y] or known.writers[y] ~= 1
            or (known.writers[x] or 0) > 1 then
            return node
        end
        lies[y] = x
        graph.decide(g, y.name, "no copy", ("its readers read %s"):format(x.name))
    end)
    for i = 1, #body do body[i] = left[i] end
end

--- Leaves such nodes out of the passes over a micro-batch.
return function(g)
    local known, lies = look(g), {}
    for _, body in ipairs { g.forward, g.evaluation, g.backward } do take_out(g, body, lies, known) end
    each_input(g, function(node, name, t)
        if lies[t] then
            node.ins = ordered.copy(node.ins, { [name] = lies[t] })
            if not node.statements then node.shapes = ordered.copy(node.shapes or {}, { [name] = t.shape }) end
        end
    end)
    read_parts(g)
end
