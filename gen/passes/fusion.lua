-- fusion: a pointwise node that is the only writer of its result, which has one reader, another
-- pointwise node of the same body that takes it element by element, is computed inside that reader.
--
--   a = x1 * x2 ; y = a + x3   ->   y = x1 * x2 + x3
--
-- Ops that only move values (slice, transpose, ...) are pointwise nodes with a view of their input.
-- A result that would have been stored in 16 bits is rounded to them all the same: bits do not depend on
-- what is fused.
local expr = require "base.expr"
local graph = require "graph.graph"
local view = require "graph.view"

local fusion = { name = "fusion", optional = true,
    doc = "chains of pointwise nodes become one kernel" }

-- Numbers of readers and writers of each tensor, over the whole graph; carries and the loss count as
-- readers.
local function count_uses(g)
    local readers, writers = {}, {}
    local function count(uses, t) uses[t] = (uses[t] or 0) + 1 end
    for _, body in ipairs { g.forward, g.backward, g.evaluation } do
        graph.walk(body, function(node)
            for _, t in ipairs(graph.reads(node)) do count(readers, t) end
            for _, out in ipairs(graph.writes(node)) do count(writers, out.tensor) end
            for _, c in ipairs(node.carries or {}) do count(readers, c.result) end
        end)
    end
    if g.output then count(readers, g.output) end       -- the caller's of a library
    return readers, writers
end

-- The expression as its result would have been read again; what only moves 16 bits rounds nothing.
local function stored(producer, value)
    local moved = producer.exprs.y.op == "var" and producer.ins[producer.exprs.y.name]
    local y = producer.outs.y.tensor
    return graph.is_half(y) and not (moved and moved.dtype == y.dtype) and expr.rounded(value) or value
end

-- Puts producer's expression in the place of the reader's input `key`.
local function absorb(producer, reader, key)
    local ins, views, order, key_of = {}, {}, {}, {}
    local function add(node, k)
        local t, v = node.ins[k], node.views[k]
        key_of[t] = key_of[t] or {}
        local found = v and view.text(v, "i") or ""
        if not key_of[t][found] then
            local name = "x" .. (#order + 1)
            key_of[t][found], order[#order + 1] = name, name
            ins[name], views[name] = t, v
        end
        return expr.var(key_of[t][found])
    end
    local inner = {}
    for _, k in ipairs(producer.signature.ins) do inner[k] = add(producer, k) end
    local value = stored(producer, expr.substitute(producer.exprs.y, inner))
    local outer = {}
    for _, k in ipairs(reader.signature.ins) do
        outer[k] = k == key and value or add(reader, k)
    end
    reader.op, reader.exprs = "map", { y = expr.substitute(reader.exprs.y, outer) }
    reader.ins, reader.views, reader.signature = ins, views, { ins = order, outs = { "y" } }
    reader.why = "fused with the pointwise op before it"
end

local function fuse_body(body, readers, writers)
    local position = {}
    for i, node in ipairs(body) do position[node] = i end
    local absorbed = {}
    for _, node in ipairs(body) do
        if node.op == "times" then
            fuse_body(node.body, readers, writers)
        elseif node.exprs then
            local again = true
            while again do
                again = false
                for _, key in ipairs(node.signature.ins) do
                    local t = node.ins[key]
                    local def = t.def
                    if def and def.exprs and position[def] and readers[t] == 1
                        and writers[t] == 1 and not def.outs.y.acc and not t.carried
                        and not node.views[key] then
                        absorb(def, node, key)
                        absorbed[def], again = true, true
                        break
                    end
                end
            end
        end
    end
    for i = #body, 1, -1 do
        if absorbed[body[i]] then table.remove(body, i) end
    end
end

function fusion.run(g)
    local readers, writers = count_uses(g)
    fuse_body(g.forward, readers, writers)
    fuse_body(g.backward, readers, writers)
end

return fusion
