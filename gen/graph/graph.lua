-- graph: the data structure between spec and text. Records are made here and in build.lua;
-- fields.lua says what each field of them means.
--
--   Graph  = { forward, evaluation, backward, boundary, views, params, ... }   bodies: lists of Node and Region
--   Node   = { op, ins = { name = Tensor }, outs = { name = Out }, attrs, ... }
--   Region = { op = "times", name, count, body, carries, ... }                a loop over equal layers
--   Carry  = { init, arg, result, out, ... }                                  a value handed from layer to layer
--   Out    = { tensor, acc, ... }
--   Tensor = { name, shape, dtype, kind, def, scope, place, ... }
--   Param  = { name, shape, region, value, gradient, state, flat, ... }
local graph = {}

local DTYPES = { real = true, f32 = true, f64 = true, i32 = true, micro = true, bf16 = true, f16 = true }

--- An empty graph of a program called `name`.
function graph.new(name)
    return {
        name = name, inputs = {}, params = {}, param_named = {}, tensors = {}, names = {},
        forward = {}, evaluation = {}, backward = {}, boundary = {}, views = {}, draws = {},
        decisions = {}, layers = {}, joints = {},
    }
end

--- Notes a decision of a pass for `gagen plan --why`: about what, what was chosen, and the reason.
function graph.decide(g, what, choice, why)
    g.decisions[#g.decisions + 1] = { what = what, choice = choice, why = why }
end

--- A dotted path as a C identifier: "h.%d.fc1.weight" is h_fc1_weight.
function graph.identifier(path)
    if path:find("^[%a_][%w_]*$") then return path end
    return (path:gsub("%.%%d", ""):gsub("[^%w_]", "_"):gsub("^%d", "_%0"))
end

--- A name not used in the graph yet: the wanted one, or with _2, _3 ... behind it.
function graph.unique(g, wanted)
    local name, key = wanted, wanted:lower()
    local last = g.names[key]       -- the last number that was put behind the wanted name
    if not last then
        g.names[key] = 1
        return wanted
    end
    while g.names[name:lower()] do
        last = last + 1
        name = wanted .. "_" .. last
    end
    g.names[key] = last
    g.names[name:lower()] = g.names[name:lower()] or 1
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
    for axis = 1, #shape do
        n = n * shape[axis]
        if n > 2 ^ 46 then error("a tensor of more than 2^46 elements") end
    end
    return n
end

local BYTES = { f32 = 4, f64 = 8, i32 = 4, bf16 = 2, f16 = 2 }

--- Bytes of an element of a tensor that has its concrete type.
function graph.bytes(t) return BYTES[t.dtype] end

--- Whether a tensor is stored in 16 bits.
function graph.is_half(t) return BYTES[t.dtype] == 2 end

--- The elements of the memory of a tensor: those of its shape, what lies between its rows, the rest of whole blocks.
function graph.room(t)
    local n = graph.elements(t.shape)
    if t.panels then return t.panels.room end
    return t.row and n // t.shape[#t.shape] * t.row or n
end

--- The memory of a tensor in elements of the program's type, of which two 16-bit ones fill one.
function graph.places(t)
    local n = graph.room(t)
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

--- The number of the first layer that a loop goes over, forwards or backwards.
function graph.first_layer(region) return region.step > 0 and region.first or region.first - region.count + 1 end

--- The parameters as nodes read them: a joint one in the place of its first member.
function graph.units(g)
    local list = {}
    for _, param in ipairs(g.params) do
        local unit = param.joint or param
        if unit == param or unit.members[1] == param then list[#list + 1] = unit end
    end
    return list
end

--- The parameters that lie in one that nodes read: the members of a joint one.
function graph.members(unit) return unit.members or { unit } end

--- The shape of what a node writes to an Out.
function graph.written(out)
    if not out.columns then return out.tensor.shape end
    local shape = table.move(out.tensor.shape, 1, #out.tensor.shape, 1, {})
    shape[#shape] = out.columns.width
    return shape
end

--- The shape that a node sees of a tensor under this name, and whether that is a run of its rows.
function graph.seen(node, name, tensor)
    local out = node.outs[name]
    if out and out.tensor == tensor and out.columns then return graph.written(out), false end
    local pattern = node.run and node.signature.shape[name]
    if not pattern or pattern:sub(1, 3) ~= "..." then return tensor.shape, false end
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
    local ins = node.ins
    for _, name in ipairs(node.signature.ins) do list[#list + 1] = ins[name] end
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
    local list, outs = {}, node.outs
    if node.op == "times" then return list end
    for _, name in ipairs(node.signature.outs) do list[#list + 1] = outs[name] end
    return list
end

--- The first tensor that a node writes.
function graph.result(node)
    for _, name in ipairs(node.signature.outs) do
        local out = node.outs[name]
        if out then return out.tensor end
    end
end

return graph
