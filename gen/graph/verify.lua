-- verify: what must hold after every pass. A violation is a bug of gagen, never of a spec.
local graph = require "graph.graph"

local function broken(pass, node, message)
    error(("after pass %s: %s (%s): %s"):format(pass, node.name or node.op or "graph",
        node.at or "?", message))
end

-- Every tensor read was written before, in the same or an enclosing body, or comes from outside.
local function check_order(pass, body, known)
    for _, node in ipairs(body) do
        if not node.at then broken(pass, node, "no place in the spec") end
        for _, t in ipairs(graph.reads(node)) do
            local given = t.kind == "input" or t.kind == "param" or t.kind == "scalar"
                or t.kind == "view" or t.kind == "range"
            if not given and not known[t] then
                broken(pass, node, "reads " .. t.name .. " before it is written")
            end
        end
        if node.op == "times" then
            for _, c in ipairs(node.carries) do known[c.arg] = true end
            check_order(pass, node.body, known)
            for _, c in ipairs(node.carries) do
                if not known[c.result] then broken(pass, node, "a carry has no result") end
                known[c.out] = true
            end
        else
            for _, out in ipairs(graph.writes(node)) do
                local t = out.tensor
                if known[t] and not out.acc and not out.run and t.kind ~= "scalar" and t.kind ~= "param"
                    and t.kind ~= "range" and not graph.reads_tensor(node, t) then
                    broken(pass, node, "writes " .. t.name .. " twice")
                end
                if out.acc and not out.acc.first and not known[t] then
                    broken(pass, node, "adds to " .. t.name .. ", which nobody wrote")
                end
                known[t] = true
            end
        end
    end
end

-- Each gradient has exactly one first writer.
local function check_gradients(pass, g)
    local firsts = {}
    graph.walk(g.backward, function(node)
        for _, out in ipairs(graph.writes(node)) do
            if out.tensor.kind == "gradient" and out.acc.first then
                firsts[out.tensor] = (firsts[out.tensor] or 0) + 1
            end
        end
    end)
    for _, param in ipairs(g.params) do
        if param.gradient and firsts[param.gradient] ~= 1 then
            broken(pass, param, "its gradient has " .. (firsts[param.gradient] or 0) ..
                " first writers, expected 1")
        end
    end
end

-- No two values that live at the same time share memory.
local function check_places(pass, g)
    local placed = {}
    for _, t in ipairs(g.tensors) do
        if t.place and t.place.from then
            for _, other in ipairs(placed) do
                local p, q = t.place, other.place
                if p.from <= q.to and q.from <= p.to
                    and p.offset < q.offset + q.stride * q.slots
                    and q.offset < p.offset + p.stride * p.slots then
                    broken(pass, t, "shares memory with " .. other.name)
                end
            end
            placed[#placed + 1] = t
        end
    end
end

--- Raises an error that names the pass and the node if an invariant does not hold.
return function(g, pass)
    local known = {}
    check_order(pass, g.forward, known)
    local evaluated = {}
    for _, t in ipairs(g.tensors) do evaluated[t] = known[t] end
    check_order(pass, g.evaluation, evaluated)
    check_order(pass, g.backward, known)
    check_order(pass, g.boundary, known)
    check_gradients(pass, g)
    check_places(pass, g)
end
