-- one_row: the forward pass for the first row of a micro-batch alone, as --sample needs it: over all positions, and
-- over one position where those before it have left their keys and values.
--
--   forward:   qkv = linear_768x384x128(x)        attend over 12 rows of 64 positions
--   a row:     qkv = linear_64x384x128(x)         attend over 1 row of 64 positions
--   a position: qkv[p] = linear_1x384x128(x[p])   attend over keys 0 .. p of 1 row
--
-- Nodes of the forward pass are taken as they are, with values of fewer rows that lie where the whole ones lie: row 0,
-- then position p of it. Keys and values have memory of their own, the cache, since positions that follow must not
-- overwrite them.
local build = require "graph.build"
local graph = require "graph.graph"
local kernels = require "emit.kernels.kernels"
local ordered = require "base.ordered"
local text = require "base.text"
local view = require "graph.view"

local one_row = {}

-- The nodes of a body that the source follows from, in their order. needed: a set of tensors; it grows.
local function needed_nodes(body, needed)
    local list = {}
    for _, node in ipairs(ordered.reversed(body)) do
        local wanted = false
        for _, out in ipairs(graph.writes(node)) do wanted = wanted or needed[out.tensor] end
        for _, carry in ipairs(node.carries or {}) do wanted = wanted or needed[carry.out] end
        if wanted then
            graph.walk({ node }, function(inner)
                for _, t in ipairs(graph.reads(inner)) do needed[t] = true end
            end)
            table.insert(list, 1, node)
        end
    end
    return list
end

-- The tensor with another shape, in the same place or in the cache; each has one.
local function shadow_of(made, t, shape, caches)
    local cache = caches:get(t)
    if not made[t] then made[t] = ordered.copy(t, { shape = shape, place = cache and cache.place or t.place }) end
    return made[t]
end

-- The sizes of an op for one row; an input may lie in memory under another shape than the one that is read.
local function sizes_of(node, copy, entry)
    local ins = ordered.copy(copy.ins)
    for name, shape in ordered.each(node.shapes or {}) do
        ins[name] = ordered.copy(ins[name], { shape = { 1, table.unpack(shape, 2) } })
    end
    return build.sizes(ordered.copy(copy, { ins = ins, shapes = {} }), entry)
end

-- The nodes of a body with `tensor_of` in the place of their tensors, changed by `change`; false if one cannot be. A
-- group of batchnorm is one row.
local function copied(body, tensor_of, change, ops)
    local list = {}
    for i, node in ipairs(body) do
        if node.op == "times" then
            local inner = copied(node.body, tensor_of, change, ops)
            if not inner then return false end
            list[i] = ordered.copy(node, { body = inner })
        else
            local copy = ordered.copy(node, { ins = {}, outs = {}, barrier = true })
            for _, name in ipairs(node.signature.ins) do
                copy.ins[name] = node.ins[name] and tensor_of(node.ins[name])
            end
            for _, name in ipairs(node.signature.outs) do
                local out = node.outs[name]
                copy.outs[name] = out and ordered.copy(out, { tensor = tensor_of(out.tensor) })
            end
            if node.op and node.op:find "^batchnorm" then copy.attrs = ordered.copy(node.attrs, { rows = 1 }) end
            if change and not change(node, copy) then return false end
            if not node.statements then copy.size = sizes_of(node, copy, ops[node.op]) end
            list[i] = copy
        end
    end
    return list
end

-- The nodes for row 0 over all positions.
local function row_nodes(body, caches, ops)
    local made = {}
    return copied(body, function(t)
        if graph.rowless(t) or t.dtype == "micro" then return t end
        return shadow_of(made, t, { 1, table.unpack(t.shape, 2) }, caches)
    end, nil, ops)
end

-- === one position ================================================================================

-- Elements of a position of a value of shape (B, T, ...); nil if it has another shape.
local function width_of(t, B, T)
    if t.shape[1] ~= B or t.shape[2] ~= T then return nil end
    return graph.elements(t.shape) // (B * T)
end

-- The view of one position, and the elements of the input from one position to the next; nil if the view moves
-- positions in another way. inner: elements of a position of the result; T: positions.
local function view_of_position(v, inner, T)
    local extents, strides, seen, step = {}, {}, 1, nil
    for k = #v.dims, 1, -1 do
        local dim = v.dims[k]
        if seen * dim.extent <= inner then
            table.insert(extents, 1, dim.extent)
            table.insert(strides, 1, dim.stride)
            seen = seen * dim.extent
        elseif not step then
            local part = inner // seen
            if inner % seen ~= 0 or dim.extent % (part * T) ~= 0 then return nil end
            table.insert(extents, 1, part)
            table.insert(strides, 1, dim.stride)
            seen, step = inner, dim.stride * part
        end
    end
    if not step or seen ~= inner then return nil end
    return view.new(extents, strides, v.offset), step
end

-- The last element that a view finds.
local function last_of(v)
    local last = v.offset
    for _, dim in ipairs(v.dims) do last = last + (dim.extent - 1) * dim.stride end
    return last
end

-- Notes how far apart the positions of a tensor lie; false if another input of the node says otherwise.
local function note_step(copy, t, step)
    local known = copy.steps[t]
    copy.steps[t] = step
    return known == nil or known == step
end

-- Changes what a pointwise node, or one behind a product, reads through a view; false if positions would move.
local function change_view(node, copy, name, shape)
    local t, v = node.ins[name], node.views and node.views[name]
    local B, T, out = shape.B, shape.T, graph.result(node)
    local inner = width_of(out, B, T)
    if not inner or t.kind == "scalar" then return inner ~= nil end
    local own, step = nil, inner
    if v then
        own, step = view_of_position(v, inner, T)
    elseif graph.elements(t.shape) ~= graph.elements(out.shape) then
        return false
    end
    if not step then return false end
    if not graph.rowless(t) then
        local width = width_of(t, B, T)
        if width ~= step or own and last_of(own) >= width then return false end
    end
    if own then copy.views[name] = not view.plain(own) and own or nil end
    return note_step(copy, copy.ins[name], step)
end

-- Whether an operand of an op stands for each position by itself: in its pattern "..." has rows and positions.
local function is_alone(pattern, t)
    local _, fixed = pattern:gsub(",%s*[%w_]+", "")
    return pattern:sub(1, 3) == "..." and #t.shape - fixed >= 2
end

-- Where the cache has the keys or values of attention, of all layers of their loop; false if a loop carries them.
local function cache_of(t, shape, caches)
    local p = t.place
    if t.kind ~= "value" or p.carry or p.arena ~= "activations" then return false end
    if not caches:has(t) then
        caches:set(t, { name = t.name .. "_cache", shape = { 1, shape.T, table.unpack(t.shape, 3) }, dtype = t.dtype,
            kind = "value", at = t.at, scope = t.scope, place = { arena = "activations",
                slots = t.scope and t.scope.count or 1 } })
    end
    return caches:get(t)
end

-- Attention of one query over the keys so far. Keys and values keep their positions.
local function change_attend(node, copy, shape, caches)
    local a, s, ins = node.attrs, node.size, node.ins
    if not a.causal or ins.mask or s.S ~= s.T then return false end
    local queries = a.heads * a.d
    copy.attrs = ordered.copy(a, { causal = false, dropout = 0, position = true })
    copy.starts = not ins.key and { key = queries, value = queries + a.kv_heads * a.d } or nil
    for _, name in ipairs { "key", "value" } do
        copy.ins[name] = cache_of(ins[name] or ins.query, shape, caches)
        if not copy.ins[name] then return false end
    end
    copy.ins.micro, copy.signature = nil, ordered.copy(node.signature, { ins = { "query", "key", "value" } })
    copy.steps[copy.ins.query] = s.Q
    for name, width in ordered.each { y = s.W, lse = s.H } do copy.steps[copy.outs[name].tensor] = width end
    return true
end

-- Changes a node to one position: copy.steps has the elements from one position to the next of each tensor that has
-- positions. False if its result at a position needs more than the position.
local function change_position(node, copy, shape, caches, ops)
    local B, T = shape.B, shape.T
    if node.shapes then return false end
    copy.steps = {}
    if node.views then copy.views = ordered.copy(node.views) end
    for _, out in ipairs(graph.writes(node)) do
        if out.columns or out.run or node.op ~= "attend" and not width_of(out.tensor, B, T) then return false end
    end
    if node.op == "attend" then return change_attend(node, copy, shape, caches) end
    if node.op == "rotary" then copy.attrs = ordered.copy(node.attrs, { position = true }) end
    local signature = ops[node.op] and ops[node.op].signature
    local function is_pointwise(name) return node.statements or name:find "^with_" or name == "behind" end
    local function take(name, t, own)
        local pattern = signature and signature.shape[name]
        local alone = is_pointwise(name) or node.op == "rotary" or graph.rowless(t) or pattern and is_alone(pattern, t)
        local width = not graph.rowless(t) and width_of(t, B, T)
        return alone and (graph.rowless(t) or width and note_step(copy, own, width)) and true or false
    end
    for _, name in ipairs(node.signature.ins) do
        local t = node.ins[name]
        if t and t.dtype ~= "micro" then
            local fits = is_pointwise(name) and change_view(node, copy, name, shape)
                or not is_pointwise(name) and take(name, t, copy.ins[name])
            if not fits then return false end
        end
    end
    for _, name in ipairs(node.signature.outs) do
        local out = node.outs[name]
        if out and not take(name, out.tensor, copy.outs[name].tensor) then return false end
    end
    return true
end

-- The keys and values of attention in these nodes; false if no cache is possible.
local function caches_of(body, shape)
    local caches, possible = ordered.map(), true
    graph.walk(body, function(node)
        if node.op == "attend" then
            for _, t in ipairs { node.ins.key or node.ins.query, node.ins.value or node.ins.query } do
                possible = possible and cache_of(t, shape, caches)
            end
        end
    end)
    return possible and caches
end

-- The shape of one position of a value; of log sums (B, H, T) those of all heads.
local function shape_of_position(t, shape)
    if t.shape[2] == shape.T then return { 1, 1, table.unpack(t.shape, 3) } end
    return { 1, 1, math.max(1, graph.elements(t.shape) // (shape.B * shape.T)) }
end

-- The nodes for one position of row 0, and the cache; false if a position needs more than those before it.
local function position_nodes(body, g, ops)
    local made, input = {}, g.inputs[1].shape
    local shape = { B = input[1], T = input[2] }
    local caches = shape.T > 1 and caches_of(body, shape)
    local nodes = caches and copied(body, function(t)
        if graph.rowless(t) or t.dtype == "micro" then return t end
        return shadow_of(made, t, shape_of_position(t, shape), caches)
    end, function(node, copy) return change_position(node, copy, shape, caches, ops) end, ops)
    return nodes, nodes and caches
end

local ALIGN = 16

-- Puts the cache behind the values of a micro-batch.
local function place_caches(g, caches)
    local arena
    for _, a in ipairs(g.arenas) do arena = a.name == "activations" and a or arena end
    local before = arena.elements
    for _, t in caches:each() do
        local size = (graph.places(t) + ALIGN - 1) // ALIGN * ALIGN
        t.place.offset, t.place.stride = arena.elements, size
        arena.elements = arena.elements + size * t.place.slots
        graph.tensor(g, t)
    end
    if arena.elements > before then
        arena.doc = ("%s; the cache of --sample, %s"):format(arena.doc, text.bytes((arena.elements - before)
            * (g.real == "f64" and 8 or 4)))
    end
end

--- Sets g.one_row, unless it is set: the nodes that `source` follows from, { row = for the first row, position = for
--- one position of it, or false }. The cache becomes part of the plan.
function one_row.add(g, source, ops)
    if g.one_row then return end
    local body = needed_nodes(g.forward, { [source] = true })
    local position, caches = position_nodes(body, g, ops)
    g.one_row = { row = row_nodes(body, caches or ordered.map(), ops), position = position }
    if caches then place_caches(g, caches) end
    graph.decide(g, "--sample", position and "a cache of keys and values" or "no cache",
        position and "a position follows from those before it" or "a position may follow from later ones")
end

-- The function that is called waits before its first node already.
local function make_kernels(body, context)
    body[1].barrier = nil
    graph.walk(body, function(node)
        if node.op ~= "times" then node.kernel = kernels.make(node, "sampling", context) end
    end)
end

--- Makes the kernels of g.one_row; the functions from context.own_functions on are theirs alone.
function one_row.kernels(g, context)
    context.own_functions = #context.functions.list + 1
    make_kernels(g.one_row.row, context)
    if g.one_row.position then make_kernels(g.one_row.position, context) end
end

return one_row
