-- graph: the data structure between spec and text. Everything is made here and in build.lua.
--
--   Tensor = { name, shape, dtype, kind, at, def, scope, param, alias, place }
--     kind   input | value | param | gradient | state | view | scalar | collected
--            range: a run of an array of the flat space, array = { kind, name }; see passes/update.lua
--     dtype  real (the program's type) | i32 | f64 | facts (ga_micro of runtime/data/data.h); after the pass
--            precision f32, f64, bf16 or f16 in the place of real
--     wide   of real numbers: never stored in 16 bits
--     scope  the region it is computed in: one value per iteration
--     low, limit  of whole numbers: all are in low .. limit - 1; nil: not known
--     rowless  made of parameters alone, so that its first axis is not the rows of the batch
--   Node   = { op, ins = { name = Tensor }, outs = { name = Out }, attrs, at, scope, why, run }
--     fence  all workers wait behind it
--     twin   the node of the backward pass whose kernel a node of an evaluation shares
--     run    the rows that it sees of operands that begin with all rows   see passes/logits.lua
--   Out    = { tensor, acc = nil | { first, regions }, run }   see passes/autodiff.lua
--   Region = { op = "times", name, count, first, step, body, carries, scope, at }
--   Carry  = { init, arg, result, out, slots }
--   Param  = { name, shape, region, at, group, value, gradient, state, kept, views, flat }
--     kept    where each state lies: { offset, stride, n }, flat's where the state lies over the flat space
--     buffer  saved with the others, but written by nodes; saved_shape: in files, if not shape
--     collected  what a cycle collects for it: it lies where a gradient would
local graph = {}

local DTYPES = { real = true, f32 = true, f64 = true, i32 = true, facts = true, bf16 = true, f16 = true }

--- An empty graph of a program called `name`.
function graph.new(name)
    return {
        name = name, inputs = {}, params = {}, tensors = {}, names = {},
        forward = {}, evaluation = {}, backward = {}, boundary = {}, views = {}, draws = {},
    }
end

--- A dotted path as a C identifier: "h.%d.fc1.weight" is h_fc1_weight.
function graph.identifier(path)
    return (path:gsub("%.%%d", ""):gsub("[^%w_]", "_"):gsub("^%d", "_%0"))
end

--- A name not used in the graph yet: the wanted one, or with _2, _3 ... behind it.
function graph.unique(g, wanted)
    local name, n = wanted, 1
    while g.names[name:lower()] do
        n = n + 1
        name = wanted .. "_" .. n
    end
    g.names[name:lower()] = true
    return name
end

--- A new tensor. t needs name, shape, kind; dtype defaults to real.
function graph.tensor(g, t)
    t.dtype = t.dtype or "real"
    assert(DTYPES[t.dtype], "unknown dtype")
    assert(t.kind and t.shape and t.name, "a tensor needs name, shape and kind")
    t.name = graph.unique(g, graph.identifier(t.name))
    g.tensors[#g.tensors + 1] = t
    return t
end

--- The number of elements of a shape.
function graph.elements(shape)
    local n = 1
    for _, extent in ipairs(shape) do
        n = n * extent
        if n > 2 ^ 46 then error("a tensor of more than 2^46 elements") end
    end
    return n
end

local BYTES = { f32 = 4, f64 = 8, i32 = 4, bf16 = 2, f16 = 2 }

--- Bytes of an element of a tensor that has its concrete type.
function graph.bytes(t) return BYTES[t.dtype] end

--- Whether a tensor is stored in 16 bits.
function graph.is_half(t) return BYTES[t.dtype] == 2 end

--- The memory of a tensor in elements of the program's type, of which two 16-bit ones fill one.
function graph.places(t)
    local n = graph.elements(t.shape)
    return graph.is_half(t) and (n + 1) // 2 or n
end

--- Whether the first axis of a tensor is not the rows of the batch.
function graph.rowless(t)
    return t.rowless or t.kind == "param" or t.kind == "view" or t.kind == "scalar"
end

--- "(16, 64)".
function graph.shape_text(shape) return "(" .. table.concat(shape, ", ") .. ")" end

--- Whether `scope` is `ancestor` or lies inside it; nil is the outermost scope.
function graph.inside(scope, ancestor)
    while scope ~= ancestor do
        if scope == nil then return false end
        scope = scope.scope
    end
    return true
end

--- What a node sees of a tensor under this name: the shape, and whether that is a run of its rows.
function graph.seen(node, name, tensor)
    local pattern = node.run and node.signature.shape[name] or ""
    if pattern:sub(1, 3) ~= "..." then return tensor.shape, false end
    local width = pattern ~= "..." and tensor.shape[#tensor.shape]
    if graph.elements(tensor.shape) ~= node.run.whole * (width or 1) then return tensor.shape, false end
    return { node.run.rows, width or nil }, true
end

--- Calls f(node, body, index) for every node of a body, regions first entered then their content.
function graph.walk(body, f)
    for i, node in ipairs(body) do
        f(node, body, i)
        if node.op == "times" then graph.walk(node.body, f) end
    end
end

--- The tensors a node reads, in the order of its op's signature; for a region the carries' inits.
function graph.reads(node)
    local list = {}
    if node.op == "times" then
        for _, carry in ipairs(node.carries) do list[#list + 1] = carry.init end
        return list
    end
    for _, name in ipairs(node.signature.ins) do
        if node.ins[name] then list[#list + 1] = node.ins[name] end
    end
    return list
end

--- Whether a node reads this tensor: what it also writes is changed in place.
function graph.reads_tensor(node, tensor)
    for _, t in ipairs(graph.reads(node)) do
        if t == tensor then return true end
    end
    return false
end

--- The Outs of a node in the order of its op's signature; for a region none.
function graph.writes(node)
    local list = {}
    if node.op == "times" then return list end
    for _, name in ipairs(node.signature.outs) do
        if node.outs[name] then list[#list + 1] = node.outs[name] end
    end
    return list
end

return graph
