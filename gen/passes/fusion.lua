-- fusion: a pointwise node that is the only writer of its result, which has one reader, another
-- pointwise node of the same body that takes it element by element, is computed inside that reader.
--
--   a = x1 * x2 ; y = a + x3   ->   y = x1 * x2 + x3
--
-- Ops that only move values (slice, transpose, ...) are pointwise nodes with a view of their input.
-- A result that would have been stored in 16 bits is rounded to them all the same: bits do not depend on
-- what is fused. A kernel has at most MOST_INPUTS inputs and MOST_STATEMENTS statements; a longer chain is several.
local expr = require "base.expr"
local graph = require "graph.graph"
local statements = require "base.statements"
local view = require "graph.view"

local fusion = { name = "fusion", optional = true,
    doc = "chains of pointwise nodes become one kernel" }

-- Each input is an address and a value: 16 addresses are the registers of a core, and more than an SM of a device
-- gives a thread without fewer threads fitting. Each is an argument of a launch too.
local MOST_INPUTS = 16

-- A compiler's time grows faster than the body of a loop: 64 calls of a function of templates/c/math.c take a second.
local MOST_STATEMENTS = 64

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
    return { readers = readers, writers = writers }
end

-- The statements of a producer, the last as its result would have been read again; what only moves 16 bits rounds
-- nothing.
local function stored(producer)
    local value = statements.result(producer.statements)
    local moved = value.op == "var" and producer.ins[value.name]
    local y = producer.outs.y.tensor
    if not graph.is_half(y) or moved and moved.dtype == y.dtype then return producer.statements end
    return statements.finish(producer.statements, expr.rounded)
end

-- The inputs of a node computed inside `reader` in the place of its input `key`: { ins, views, order }, and for each
-- of both nodes what their inputs are called there. An element that both read is one input.
local function joined_inputs(producer, reader, key)
    local joined, named, map_of = { ins = {}, views = {}, order = {} }, {}, { [producer] = {}, [reader] = {} }
    for _, node in ipairs { producer, reader } do
        for _, k in ipairs(node.signature.ins) do
            local t, v = node.ins[k], node.views[k]
            local at = v and view.text(v, "i") or ""
            named[t] = named[t] or {}
            if not (node == reader and k == key) then
                if not named[t][at] then
                    local name = "x" .. (#joined.order + 1)
                    named[t][at], joined.order[#joined.order + 1] = name, name
                    joined.ins[name], joined.views[name] = t, v
                end
                map_of[node][k] = expr.var(named[t][at])
            end
        end
    end
    return joined, map_of
end

-- Computes producer inside the reader of its result, the reader's input `key`. Returns false if the kernel would be
-- too large.
local function absorb(producer, reader, key)
    if #producer.statements + #reader.statements > MOST_STATEMENTS then return false end
    local joined, map_of = joined_inputs(producer, reader, key)
    if #joined.order > MOST_INPUTS then return false end
    local first = statements.substitute(stored(producer), map_of[producer])
    map_of[reader][key] = statements.value(first)
    reader.op, reader.statements = "map", statements.append(first, reader.statements, map_of[reader])
    reader.ins, reader.views, reader.signature = joined.ins, joined.views, { ins = joined.order, outs = { "y" } }
    reader.why = "fused with the pointwise op before it"
    return true
end

-- Why the pointwise node that made a reader's input is not computed inside the reader; nil: nothing is against it but
-- the size of the kernel.
local function obstacle(reader, key, position, uses)
    local t = reader.ins[key]
    if uses.readers[t] ~= 1 then return ("%d nodes read it"):format(uses.readers[t]) end
    if not position[t.def] then return "its reader stands in another body" end
    if uses.writers[t] ~= 1 or t.def.outs.y.acc then return "several nodes or micro-steps write it" end
    if t.carried then return "a loop carries it" end
    if reader.views[key] then return "its reader reads it through a view" end
end

local TOO_LARGE = ("the kernel would have more than %d inputs or %d statements"):format(MOST_INPUTS, MOST_STATEMENTS)

-- Notes why the pointwise values that a pointwise node still reads are values in memory.
local function note_kept(g, node, position, uses, noted)
    for _, key in ipairs(node.signature.ins) do
        local t = node.ins[key]
        if t.def and t.def.statements and not noted[t] then
            noted[t] = true
            graph.decide(g, t.name, "not fused", obstacle(node, key, position, uses) or TOO_LARGE)
        end
    end
end

-- Absorbs one input of a node; returns the node that made it, or nil if there is none left.
local function fuse_one(g, node, position, uses)
    for _, key in ipairs(node.signature.ins) do
        local t = node.ins[key]
        if t.def and t.def.statements and not obstacle(node, key, position, uses) and absorb(t.def, node, key) then
            graph.decide(g, t.name, "fused", ("%s alone reads it"):format(node.outs.y.tensor.name))
            return t.def
        end
    end
end

local function fuse_body(g, body, uses, noted)
    local position = {}
    for i, node in ipairs(body) do position[node] = i end
    local absorbed = {}
    for _, node in ipairs(body) do
        if node.op == "times" then fuse_body(g, node.body, uses, noted) end
        local def = node.statements and fuse_one(g, node, position, uses)
        while def do
            absorbed[def] = true
            def = fuse_one(g, node, position, uses)
        end
        if node.statements then note_kept(g, node, position, uses, noted) end
    end
    local kept = 0
    for i, node in ipairs(body) do
        body[i] = nil
        if not absorbed[node] then
            kept = kept + 1
            body[kept] = node
        end
    end
end

function fusion.run(g)
    local uses = count_uses(g)
    local noted = {}
    fuse_body(g, g.forward, uses, noted)
    fuse_body(g, g.backward, uses, noted)
end

return fusion
