-- copies: leaves out nodes that move no element, for pass fusion. Their readers read the input where it lies; sizes and
-- views of the readers stay.
--
--   y (64, 784) = reshape(x (64, 1, 28, 28)) ; z = linear(y, w)   ->   z = linear(x, w)
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
    for _, body in ipairs { g.forward, g.evaluation, g.backward } do
        graph.walk(body, function(node)
            for _, name in ipairs(node.ins and node.signature.ins or {}) do
                local x = lies[node.ins[name]]
                if x then node.ins = ordered.copy(node.ins, { [name] = x }) end
            end
        end)
    end
end
