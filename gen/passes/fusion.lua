-- fusion: computes a pointwise node inside the pointwise node that reads its result, if both are in the same body,
-- no other node reads or writes the result, and the reader reads it element by element.
--
--   a = x1 * x2 ; y = a + x3   ->   y = x1 * x2 + x3
--
-- Ops that only move values (slice, transpose, ...) are pointwise nodes with a view of their input.
-- A result of 16 bits is rounded to them in the fused kernel too, so that results do not depend on fusion. A kernel
-- has at most MOST_INPUTS inputs and MOST_STATEMENTS statements; a longer chain becomes several kernels.
--
-- Nodes that move no element are left out before that (passes/copies.lua).
--
-- Then a pointwise node that reads a product's result moves into the product's kernel, if the target says so of the op
-- (config.behind): it computes each element as soon as its sum is complete. If other bodies read the product's result
-- too, the kernel writes both.
--
--   y = linear(x, w) ; z = gelu(y)   ->   y, z = linear(x, w), behind: gelu(value)
--
-- A dropout that alone reads a product's result moves there, too, before that node (config.drops).
local copies = require "passes.copies"
local expr = require "base.expr"
local graph = require "graph.graph"
local ordered = require "base.ordered"
local statements = require "base.statements"
local view = require "graph.view"

local fusion = { name = "fusion", optional = true,
    doc = "chains of pointwise nodes become one kernel; values are not copied to be read" }

-- Each input needs an address and a value: 16 addresses fill the registers of a CPU core, and more registers per
-- thread leave fewer threads on an SM. Each input is also an argument of a launch.
local MOST_INPUTS = 16

-- Compile time grows faster than the body of a loop: 64 calls of functions of templates/c/math.c take a second.
local MOST_STATEMENTS = 64

-- The number of readers and writers of each tensor in the whole graph. A carry reads its result, a caller the output.
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
    if g.output then count(readers, g.output) end       -- the caller of a library reads it
    return { readers = readers, writers = writers }
end

-- The statements of a producer, with its result rounded as if stored. A producer that only moves a 16-bit value needs
-- no rounding.
local function stored(producer)
    local value = statements.result(producer.statements)
    local moved = value.op == "var" and producer.ins[value.name]
    local y = producer.outs.y.tensor
    if not graph.is_half(y) or moved and moved.dtype == y.dtype then return producer.statements end
    return statements.finish(producer.statements, expr.rounded)
end

-- Joins the inputs of `producer`, fused in place of the input `key` of `reader`. Returns { ins, views, order }, and for
-- both nodes a map from their input names to the joined ones. An element that both read is one input.
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

-- Computes producer inside `reader`, in place of the reader's input `key`. Returns false if the kernel would be too
-- large.
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

-- The reason why the producer of a reader's input cannot be fused into the reader; nil if only the size of the kernel
-- may forbid it.
local function obstacle(reader, key, position, uses)
    local t = reader.ins[key]
    if uses.readers[t] ~= 1 then return ("%d nodes read it"):format(uses.readers[t]) end
    if not position[t.def] then return "its reader stands in another body" end
    if uses.writers[t] ~= 1 or t.def.outs.y.acc then return "several nodes or micro-steps write it" end
    if t.carried then return "a loop carries it" end
    if reader.views[key] then return "its reader reads it through a view" end
end

local TOO_LARGE = ("the kernel would have more than %d inputs or %d statements"):format(MOST_INPUTS, MOST_STATEMENTS)

-- Records why the pointwise inputs that a pointwise node still reads were not fused.
local function note_kept(g, node, position, uses, noted)
    for _, key in ipairs(node.signature.ins) do
        local t = node.ins[key]
        if t.def and t.def.statements and not noted[t] then
            noted[t] = true
            graph.decide(g, t.name, "not fused", obstacle(node, key, position, uses) or TOO_LARGE)
        end
    end
end

-- Fuses the producer of one input into a node; returns the producer, or nil if no input can be fused.
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

-- The reason why a pointwise node cannot stand behind the product whose result is its input `key`.
local function obstacle_behind(product, reader, key, position, uses, here)
    local y, z = product.outs.y, reader.outs.y
    if not position[product] then return "its reader stands in another body" end
    if here[y.tensor] ~= 1 then return ("%d nodes here read it"):format(here[y.tensor]) end
    if uses.writers[y.tensor] ~= 1 or y.acc then return "several nodes or micro-steps write it" end
    if z.acc or z.tensor.dtype == "i32" then return "its reader adds, or writes whole numbers" end
    if y.tensor.carried or y.tensor.carry_out then return "a loop carries it" end
    if (reader.views or {})[key] or graph.elements(z.tensor.shape) ~= graph.elements(y.tensor.shape) then
        return "its reader reads it through a view"
    end
    if product.run or product.behind then return "its kernel has something behind it already" end
end

-- The reason that step.c shows for a product with `op` behind it: the product's own, if it has one, and this.
local function why_of(product, op)
    return (product.why and product.why .. ", " or "") .. ("with %s behind it"):format(op)
end

-- Moves the reader's statements behind the product: the reader becomes the fused node.
local function put_behind(product, reader, key, both)
    local y, name = product.outs.y, product.signature.outs[1]
    local value = expr.var "value"
    local map = { [key] = graph.is_half(y.tensor) and expr.rounded(value) or value }
    local ins, views, order = ordered.copy(product.ins), {}, table.move(product.signature.ins, 1,
        #product.signature.ins, 1, {})
    for _, k in ipairs(reader.signature.ins) do
        if k ~= key then
            local number = #order - #product.signature.ins + 1
            local extra = "with_" .. number
            ins[extra], views[extra], order[#order + 1] = reader.ins[k], reader.views[k], extra
            map[k] = expr.var("x_" .. number)
        end
    end
    reader.behind = { statements = statements.substitute(reader.statements, map), both = both }
    reader.outs = both and { [name] = y, behind = reader.outs.y } or { [name] = reader.outs.y }
    reader.op, reader.attrs, reader.size, reader.drops = product.op, product.attrs, product.size, product.drops
    reader.parts, reader.shapes, reader.octets = product.parts, product.shapes, product.octets
    reader.statements, reader.ins, reader.views, reader.at = nil, ins, views, product.at
    reader.signature = ordered.copy(product.signature, { ins = order, outs = both and { name, "behind" } or { name } })
    reader.why, reader.named = why_of(product, "the pointwise op"), y.tensor
    if both then y.tensor.def = reader end
end

-- Lets a product's kernel drop elements of its result: the dropout becomes the product.
local function put_drops(product, dropout)
    local order = table.move(product.signature.ins, 1, #product.signature.ins, 1, {})
    order[#order + 1] = "micro"
    local y = product.outs.y.tensor
    dropout.drops, dropout.named = ordered.copy(dropout.attrs, { half = graph.is_half(y) }), y
    dropout.op, dropout.attrs, dropout.size, dropout.shapes = product.op, product.attrs, product.size, product.shapes
    dropout.ins = ordered.copy(product.ins, { micro = dropout.ins.micro })
    dropout.signature = ordered.copy(product.signature, { ins = order })
    dropout.at, dropout.why = product.at, why_of(product, "the dropout")
end

-- How often the nodes of a body read each tensor, those of its loops too.
local function readers_in(body)
    local list = {}
    local function count(t) list[t] = (list[t] or 0) + 1 end
    graph.walk(body, function(node)
        for _, t in ipairs(graph.reads(node)) do count(t) end
        for _, c in ipairs(node.carries or {}) do count(c.result) end
    end)
    return list
end

-- The product behind which a pointwise node can stand, and its input; nil if there is none.
local function product_before(g, node, position, uses, here, ops)
    for _, key in ipairs(node.signature.ins) do
        local t = node.ins[key]
        local product = t.def
        if product and ops[product.op] and not product.statements then
            local why = obstacle_behind(product, node, key, position, uses, here)
            if not why then return product, key end
            graph.decide(g, t.name, "nothing behind it", why)
        end
    end
end

local function fuse_behind(g, body, uses, ops)
    local position, here, moved = {}, readers_in(body), {}
    for i, node in ipairs(body) do position[node] = i end
    for _, node in ipairs(body) do
        if node.op == "times" then fuse_behind(g, node.body, uses, ops) end
        local product, key
        if node.statements then product, key = product_before(g, node, position, uses, here, ops) end
        if product then
            local y, both = product.outs.y.tensor, uses.readers[product.outs.y.tensor] > 1
            graph.decide(g, y.name, "fused", ("its kernel computes %s too"):format(node.outs.y.tensor.name))
            put_behind(product, node, key, both)
            moved[product] = true
        end
    end
    local kept = ordered.collect(body, function(node) return not moved[node] and node or nil end)
    for i = 1, #body do body[i] = kept[i] end
end

local function fuse_drops(g, body, uses, ops)
    local position, here, moved = {}, readers_in(body), {}
    for i, node in ipairs(body) do position[node] = i end
    for _, node in ipairs(body) do
        local product = node.op == "dropout" and node.ins.x.def
        if node.op == "times" then fuse_drops(g, node.body, uses, ops)
        elseif product and ops[product.op] then
            local t = node.ins.x
            local why = obstacle_behind(product, node, "x", position, uses, here)
                or uses.readers[t] > 1 and ("%d nodes read it"):format(uses.readers[t])
            graph.decide(g, t.name, why and "not dropped in its kernel" or "dropped in its kernel",
                why or ("%s alone reads it"):format(node.outs.y.tensor.name))
            if not why then put_drops(product, node) end
            moved[product] = not why or nil
        end
    end
    local kept = ordered.collect(body, function(node) return not moved[node] and node or nil end)
    for i = 1, #body do body[i] = kept[i] end
end

function fusion.run(g, config)
    copies(g)
    local uses = count_uses(g)
    local noted = {}
    for _, body in ipairs { g.forward, g.backward } do fuse_body(g, body, uses, noted) end
    for _, body in ipairs { g.forward, g.backward } do fuse_drops(g, body, uses, config.drops) end
    for _, body in ipairs { g.forward, g.backward } do fuse_behind(g, body, uses, config.behind) end
end

return fusion
