-- autodiff: adds the backward pass.
--
--   forward   y = linear(x, w)       backward   d_w  = linear_dw(d_y, x)     acc: first
--             loss = f(y)                       d_x  = linear_dx(d_y, w)
--
-- The same function differentiates the graph and, recursively, the bodies of `times` regions: the reverse of a
-- region is a region that runs backwards and carries the gradients of the region's carries.
-- A gradient with several contributions has one tensor: the first contribution writes it, the others add to it in
-- their own kernels. Out.acc = { first, regions }: `regions` are the loops between the writer and the gradient's
-- scope; only in their first iteration may the writer write instead of add.
local expr = require "base.expr"
local graph = require "graph.graph"
local ordered = require "base.ordered"

local autodiff = { name = "autodiff", doc = "adds backward nodes and gradient tensors" }

local Gradients = {}
Gradients.__index = Gradients

-- A table of the gradients of one forward scope (a region or nil), computed in one body.
local function gradients(builder, parent, forward)
    return setmetatable({ b = builder, scope = builder.scope, body = builder.body, entries = {}, parent = parent,
        forward = forward, positions = {}, indexed = 0 }, Gradients)
end

-- The loops from the writer's scope out to the scope that owns the gradient.
local function loops_between(scope, owner)
    local list = {}
    while scope ~= owner do
        list[#list + 1] = scope
        scope = scope.scope
    end
    return list
end

-- Makes the writer of d write `target` instead. d is copied to target if it is the result of a region, if another
-- gradient reads it, or if its kernel cannot add.
local function redirect(b, d, fresh, target, acc)
    local op = fresh and b.ops[d.def.op]      -- the argument of a region has no node of its own
    if not fresh or d.def.op == "times" or op and op.never_adds then
        d = b:value("copy", { x = d }, nil, target.name .. "_part")
    end
    local node = d.def
    for _, name in ipairs(node.signature.outs) do
        if node.outs[name].tensor == d then
            node.outs[name] = { tensor = target, acc = acc }
        end
    end
    target.def = target.def or node
end

-- The table of gradients, from `self` outwards, of the tensor's scope.
local function level_of(self, tensor)
    local level = self
    while level.forward ~= tensor.scope do
        level = level.parent
        if not level then error("gradient of a tensor outside every open scope: " .. tensor.name) end
    end
    return level
end

function Gradients:add_param(param, d, fresh)
    if not param.gradient then
        param.gradient = graph.tensor(self.b.graph, { name = "d_" .. param.value.name,
            shape = param.shape, kind = "gradient", at = param.at, param = param,
            scope = param.region })
    end
    local level = self
    while level.forward ~= param.region do level = level.parent end
    local regions = loops_between(self.b.scope, level.scope)
    redirect(self.b, d, fresh, param.gradient, { first = param.gradient.def == nil,
        regions = regions })
end

-- The position of a node in the body of this table; nil if it is not in the body itself.
function Gradients:position(node)
    for i = self.indexed + 1, #self.body do self.positions[self.body[i]] = i end
    self.indexed = #self.body
    return self.positions[node]
end

-- Whether `first` comes before `second` in the body of this table.
function Gradients:stands_before(first, second)
    local a, b = self:position(first), self:position(second)
    return not b or a ~= nil and a < b
end

-- The gradient of a joint product's result: each part of it writes its columns.
function Gradients:add_columns(tensor, out)
    local entry = self.entries[tensor]
    if entry then
        out.tensor = entry.tensor
    else
        out.tensor.name = graph.unique(self.b.graph, "d_" .. tensor.name)
        entry = { tensor = out.tensor, fresh = true, columns = 0 }
        self.entries[tensor] = entry
    end
    entry.columns = entry.columns + out.columns.width
end

function Gradients:add(tensor, d, fresh)
    if tensor.param then return self:add_param(tensor.param, d, fresh) end
    local out = fresh and d.def and d.def.op == "part_dx" and d.def.outs.y
    if out then return self:add_columns(tensor, out) end
    local b, level = self.b, level_of(self, tensor)
    local entry = level.entries[tensor]
    local regions = loops_between(b.scope, level.scope)
    if #regions == 0 then
        if not entry then
            local wanted = "d_" .. tensor.name
            if fresh and d.name ~= wanted then d.name = graph.unique(b.graph, wanted) end
            if fresh then d.keep_full = tensor.keep_full end
            level.entries[tensor] = { tensor = d, fresh = fresh }
        elseif entry.fresh and level:stands_before(entry.tensor.def, d.def) then
            redirect(b, d, fresh, entry.tensor, { first = false, regions = regions })
        else
            local sum = b:map({ entry.tensor, d }, function(x, y) return x + y end, "d_" .. tensor.name, nil,
                "add_out")
            sum.keep_full = tensor.keep_full
            level.entries[tensor] = { tensor = sum, fresh = true }
        end
        return
    end
    if entry and not entry.fresh then     -- iterations add to it, so it must be a tensor of its own
        entry = { tensor = level:own(entry.tensor, regions[#regions], tensor), fresh = true }
        level.entries[tensor] = entry
    end
    if not entry then
        local target = graph.tensor(b.graph, { name = "d_" .. tensor.name, shape = tensor.shape,
            dtype = tensor.dtype, kind = "value", at = tensor.at, scope = level.scope, keep_full = tensor.keep_full })
        level.entries[tensor] = { tensor = target, fresh = true }
        redirect(b, d, fresh, target, { first = true, regions = regions })
    else
        redirect(b, d, fresh, entry.tensor, { first = false, regions = regions })
    end
end

-- A copy of `value` in this table's body, placed before the open region `before`.
function Gradients:own(value, before, tensor)
    local b = self.b
    local body, scope = b.body, b.scope
    b.body, b.scope = before.outer_body, self.scope
    local copied = b:value("copy", { x = value }, nil, "d_" .. tensor.name)
    copied.keep_full = tensor.keep_full
    local list = before.outer_body          -- its last two nodes are the open region and the copy
    list[#list - 1], list[#list] = list[#list], list[#list - 1]
    self.indexed = math.min(self.indexed, #list - 2)
    b.body, b.scope = body, scope
    return copied
end

function Gradients:take(tensor)
    local entry, g = self.entries[tensor], self.b.graph
    self.entries[tensor] = nil
    assert(not entry or not entry.columns or entry.columns == tensor.shape[#tensor.shape], "a part without a gradient")
    if tensor == g.output then g.d_output = entry and entry.tensor end
    return entry and entry.tensor
end

-- Marks tensors that depend on a trainable parameter (tensor.needs), unless an op stops their gradients.
local function mark(body, ops)
    for _, node in ipairs(body) do
        local needs = false
        if node.op == "times" then
            repeat
                local changed = false
                mark(node.body, ops)
                for _, c in ipairs(node.carries) do
                    local want = c.init.needs or c.result.needs or
                        (c.init.param and not c.init.param.frozen)
                    if want and not c.arg.needs then c.arg.needs, changed = true, true end
                end
            until not changed
            for _, c in ipairs(node.carries) do c.out.needs = c.result.needs or c.arg.needs end
        elseif not ops[node.op].stops then
            for _, t in ipairs(graph.reads(node)) do
                if t.needs or (t.param and not t.param.frozen) then needs = true end
            end
            for _, out in ipairs(graph.writes(node)) do
                out.tensor.needs = needs or out.tensor.needs
            end
        end
    end
end

local function wants_gradient(t)
    return t.needs or (t.param and not t.param.frozen)
end

-- The gradients of a node's inputs: of an op by input name; of a pointwise node nil and a list of { input, gradient }.
local function node_gradients(b, ops, node, dy)
    if node.op ~= "map" then return ops[node.op].grad(b, node, dy) end
    local rule, d = node.attrs.rule, {}
    local xs, n = {}, #node.attrs.variables
    local function partials(...) return table.pack(rule.entry.grad(rule.fields, ...)) end
    local arguments = { expr.var "dy", table.unpack(node.attrs.variables) }
    arguments[#arguments + 1] = expr.var "y"
    local trial = partials(table.unpack(arguments))
    for i, v in ipairs(node.attrs.variables) do xs[i] = node.ins[v.name] end
    local tensors = { dy.y, table.unpack(xs) }
    tensors[#tensors + 1] = node.outs.y.tensor
    for i = 1, n do
        if wants_gradient(xs[i]) and trial[i] then     -- nil: no gradient flows to this input
            local result = b:map(tensors, function(...) return partials(...)[i] end,
                "d_" .. xs[i].name, nil, rule.entry.name .. (n == 1 and "_dx" or i == 1 and "_da" or "_db"))
            d[#d + 1] = { xs[i], b:sum_to(result, xs[i].shape) }
        end
    end
    return nil, d
end

local function differentiate_region(b, ops, node, level)
    local live = {}
    for _, c in ipairs(node.carries) do
        local d_out = level:take(c.out)
        if d_out then live[#live + 1] = { c, d_out } end
    end
    if #live == 0 then return end
    local last = node.first + (node.count - 1) * node.step
    local back = b:open_region(node.name, node.count, last, -node.step)
    back.reverse_of = node
    local inner = gradients(b, level, node)
    for _, pair in ipairs(live) do
        local c = pair[1]
        pair.back = b:carry(back, pair[2], "d_" .. c.out.name)
        inner.entries[c.result] = { tensor = pair.back.arg, fresh = false }
    end
    autodiff.differentiate(b, ops, node.body, inner)
    for _, pair in ipairs(live) do
        local c = pair[1]
        local d_arg = inner:take(c.arg)        -- nil: no gradient flows to the iteration before
            or b:map({ pair.back.arg }, function() return 0 end, "d_" .. c.arg.name, nil, "zero_out")
        pair.out = b:carry_result(pair.back, d_arg, "d_" .. c.init.name)
    end
    b:close_region(back)
    for _, pair in ipairs(live) do
        if wants_gradient(pair[1].init) then level:add(pair[1].init, pair.out, true) end
    end
end

local function differentiate_node(b, ops, node, level)
    local dy, any = {}, false
    for _, name in ipairs(node.signature.outs) do
        dy[name] = level:take(node.outs[name].tensor)
        any = any or dy[name] ~= nil
    end
    if not any then return end
    b.at, b.path, b.keep_full = node.at, { node.path ~= "" and node.path or nil }, node.keep_full
    local before = #b.body
    local by_name, list = node_gradients(b, ops, node, dy)
    if by_name then
        list = {}
        for _, name in ipairs(node.signature.ins) do
            if by_name[name] then list[#list + 1] = { node.ins[name], by_name[name] } end
        end
    end
    local made, seen = {}, {}
    for i = before + 1, #b.body do made[b.body[i]] = true end
    for _, pair in ipairs(list) do
        local tensor, d = pair[1], pair[2]
        local fresh = made[d.def] and not seen[d]
        seen[d] = true
        if wants_gradient(tensor) then
            level:add(tensor, d, fresh)
        elseif fresh then
            d.unused = true
        end
    end
end

--- Appends the reverse of `body` to the builder's body; `level` holds the gradients so far.
function autodiff.differentiate(b, ops, body, level)
    for i = #body, 1, -1 do
        local node = body[i]
        if node.op == "times" then
            differentiate_region(b, ops, node, level)
        else
            differentiate_node(b, ops, node, level)
        end
    end
end

-- Drops nodes whose results no node needs, such as the gradient of an input, and the nodes that only lead to them.
local function drop_unused(g)
    local readers = {}
    local function count(node, by)
        for _, t in ipairs(graph.reads(node)) do readers[t] = (readers[t] or 0) + by end
    end
    graph.walk(g.backward, function(node)
        count(node, 1)
        for _, c in ipairs(node.carries or {}) do readers[c.result] = (readers[c.result] or 0) + 1 end
    end)
    local function used(t) return t == g.d_output or not t.unused and readers[t] ~= 0 end
    local function kept(body)
        local list = {}
        for i = #body, 1, -1 do
            local node, any = body[i], body[i].op == "times"
            if any then node.body = kept(node.body) end
            for _, out in ipairs(graph.writes(node)) do any = any or used(out.tensor) end
            if any then list[#list + 1] = node else count(node, -1) end
        end
        return ordered.reversed(list)
    end
    g.backward = kept(g.backward)
end

-- Members of joint parameters have their part of its gradient.
local function set_used(g)
    for _, joint in ipairs(g.joints) do
        for _, param in ipairs(joint.gradient and joint.members or {}) do
            param.gradient = graph.tensor(g, { name = "d_" .. param.value.name, shape = param.shape,
                kind = "gradient", at = param.at, def = joint.gradient.def, param = param, scope = param.region })
        end
        joint.used = joint.gradient ~= nil
    end
    for _, param in ipairs(g.params) do param.used = param.gradient ~= nil end
end

function autodiff.run(g, config)
    local b = config.builder
    mark(g.forward, config.ops)
    b.body, b.scope, b.path, b.at = g.backward, nil, {}, g.loss.at
    local level = gradients(b, nil)
    local d_loss = b:value("loss_seed", { target = g.loss.target, micro = g.micro, seed = g.seed,
        sums = g.loss.attrs.weight == "micro" and g.sums or nil },
        ordered.copy(g.loss.attrs, { shape = g.loss.rows.shape }), "d_loss")
    level.entries[g.loss.rows] = { tensor = d_loss, fresh = true }
    autodiff.differentiate(b, config.ops, g.forward, level)
    b.keep_full = nil
    drop_unused(g)
    set_used(g)
end

return autodiff
