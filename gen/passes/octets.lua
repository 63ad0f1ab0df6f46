-- octets: the order in memory of the planes (rows, channels, height, width) around convolutions that a target gathers
-- by octets: 8 channels of a place side by side, so that 16 bytes are what a product reads of a place at one tap.
--
--   element (b, c, h, w)  at  ((b C / 8 + c / 8) H W + h W + w) 8 + c % 8
--
-- Nodes that work in either order (`octets` in an op's entry; pointwise ones without views) read and write all their
-- planes in one, so values are in classes that have one order. A class lies by octets where such a convolution reads or
-- writes a value of it. Between the orders a node `octets` or `planes` copies; `octets` fills up groups whose channels
-- are no whole octets with zeros.
local graph = require "graph.graph"
local ordered = require "base.ordered"

local octets = { name = "octets", doc = "8 channels side by side around convolutions on tensor cores" }

local OCTET = 8
local BODIES = { "forward", "backward", "evaluation" }

-- The planes that convolutions read and write.
local PLANES = { conv2d = { "x", "y" }, conv2d_dx = { "dy", "y" }, conv2d_dw = { "dy", "x" } }

-- Channels of the planes of a convolution: those of x, or of y.
local function channels_of(node, name)
    local a = node.attrs
    if name == "x" or node.op == "conv2d_dx" and name == "y" then return a.channels end
    return a.out
end

-- The channels with the zeros of octets.
local function filled(channels, groups)
    return groups * ((channels // groups + OCTET - 1) // OCTET) * OCTET
end

-- Whether a convolution, or a product of its gradient, gathers octets.
local function gathers(node, config)
    if not PLANES[node.op] then return false end
    if node.op == "conv2d_dw" then
        return graph.is_half(node.ins.x) and config.octets(node.attrs, "weight", node.size.B)
    end
    local maker = node.ins.weight.def
    return maker and maker.attrs and maker.attrs.octets ~= nil
end

local function can_be(t, g)
    return t.kind == "value" and #t.shape == 4 and t.shape[2] % OCTET == 0 and t ~= g.output
end

-- All tensors of a node.
local function tensors_of(node)
    local list = graph.reads(node)
    for _, out in ipairs(graph.writes(node)) do list[#list + 1] = out.tensor end
    return list
end

-- The planes that a node reads and writes in one order, whichever it is; nil: it needs them as they are.
local function planes_of(node, g, config)
    local op = config.ops[node.op]
    if node.run or not (node.statements or op and op.octets) then return nil end
    local list, shape = {}, nil
    if node.statements then
        for _, out in ipairs(graph.writes(node)) do
            if out.columns then return nil end
            shape = out.tensor.shape
        end
        if #ordered.keys(node.views) > 0 then return nil end
        for _, t in ipairs(tensors_of(node)) do
            if t.kind ~= "scalar" then list[#list + 1] = t end
        end
    else
        for name in op.octets:gmatch "%S+" do
            local out = node.outs[name]
            list[#list + 1] = node.ins[name] or out and out.tensor
        end
    end
    for _, t in ipairs(list) do
        if not can_be(t, g) or shape and graph.shape_text(t.shape) ~= graph.shape_text(shape) then return nil end
    end
    return list
end

-- Classes of values with one order: a tensor leads to another one of its class, the last one to none.
local function class_of(lead, t)
    while lead[t] do t = lead[t] end
    return t
end

local function join(lead, list)
    local first = class_of(lead, list[1])
    for _, t in ipairs(list) do
        local other = class_of(lead, t)
        if other ~= first then lead[other] = first end
    end
end

-- Finds the classes; sets `octets` of the values that lie so. Returns the nodes that work in either order, with a value
-- of each.
local function choose(g, config)
    local lead, either, wanted, fixed = {}, {}, {}, {}
    for _, body in ipairs(BODIES) do
        graph.walk(g[body], function(node)
            local list = node.op ~= "times" and planes_of(node, g, config)
            if list and #list > 0 then
                either[node] = list[1]
                join(lead, list)
            end
            for _, c in ipairs(node.carries or {}) do
                local all = { c.init, c.arg, c.result, c.out }
                join(lead, all)
                for _, t in ipairs(all) do fixed[#fixed + 1] = not can_be(t, g) and t or nil end
            end
            for _, name in ipairs(gathers(node, config) and PLANES[node.op] or {}) do
                local out, channels = node.outs[name], channels_of(node, name)
                local t = node.ins[name] or out.tensor
                if can_be(t, g) and filled(channels, node.attrs.groups) == channels then wanted[#wanted + 1] = t end
            end
        end)
    end
    local planes, chosen = {}, {}
    for _, t in ipairs(fixed) do planes[class_of(lead, t)] = true end
    for _, t in ipairs(wanted) do chosen[class_of(lead, t)] = not planes[class_of(lead, t)] end
    for _, t in ipairs(g.tensors) do t.octets = chosen[class_of(lead, t)] or nil end
    return either
end

local Copies = {}
Copies.__index = Copies

-- Appends a node that copies x into the other order; returns it.
function Copies:copy(op, x, node, attrs, name)
    local b = self.builder
    b.at, b.path, b.body, b.scope = node.at, {}, self.body, node.scope
    local copy = b:node(op, { x = x }, attrs, { y = name })
    local y = copy.outs.y.tensor
    y.dtype, y.octets = op == "octets" and self.graph.half or x.dtype, op == "octets" or nil
    return copy
end

-- How many nodes write each tensor: those behind the first one add to it.
local function writers_of(g)
    local writers = {}
    for _, name in ipairs(BODIES) do
        graph.walk(g[name], function(node)
            for _, out in ipairs(graph.writes(node)) do writers[out.tensor] = (writers[out.tensor] or 0) + 1 end
        end)
    end
    return writers
end

-- The value of f32 that a node only rounds to t, if there is one: a copy by octets rounds, too. One with other axes, as
-- behind it a reshape gave it those of t, is rounded first.
local function rounded_from(t)
    local list = t.def and t.def.statements
    local x = list and #list == 1 and list[1][2].op == "var" and t.def.ins[list[1][2].name]
    if not x or x.dtype ~= "f32" or #ordered.keys(t.def.views) > 0 then return nil end
    return graph.shape_text(x.shape) == graph.shape_text(t.shape) and x or nil
end

-- t in the other order, for a node that reads it: a copy made before, in the same body or ahead of all loops of the
-- forward pass, or a new one.
function Copies:read(op, t, node, attrs)
    local from = op == "octets" and self.writers[t] == 1 and rounded_from(t) or t
    if from ~= t then self.skipped[t] = true end
    local key = op .. (attrs.groups or 1)
    local known = self.made[from] and self.made[from][key]
    if not (known and (known.body == self.body or known.body == self.graph.forward)) then
        known = { body = self.body, tensor = self:copy(op, from, node, attrs, t.name .. "_" .. op).outs.y.tensor }
        self.made[from] = self.made[from] or {}
        self.made[from][key] = known
    end
    return known.tensor
end

-- Lets a node write its result `name` in the other order, of this shape; a node behind it copies.
function Copies:write(op, name, node, attrs, shape)
    local out = node.outs[name]
    local t = out.tensor
    local written = graph.tensor(self.graph, { name = t.name .. (op == "octets" and "_planes" or "_octets"),
        shape = shape, dtype = t.dtype, kind = "value", at = node.at, def = node, scope = node.scope,
        rowless = t.rowless, octets = op == "planes" or nil })
    node.outs[name] = { tensor = written }
    local copy = self:copy(op, written, node, attrs, t.name)
    self.graph.tensors[#self.graph.tensors] = nil          -- it writes the node's own result
    copy.outs.y = out
    if t.def == node then t.def = copy end
end

local function attrs_of(node, name)
    return { channels = channels_of(node, name), groups = node.attrs.groups }
end

-- Whether a node must not see a value that lies by octets: planes of one place lie as all others read them.
local function differs(t, node) return t.shape[3] * t.shape[4] > 1 or PLANES[node.op] ~= nil end

-- Calls f(name) for the planes that are among the operands `list` of a node's signature.
local function each_name(list, among, f)
    for _, name in ipairs(list) do
        if among[name] then f(name) end
    end
end

function Copies:before(node, gathered)
    local names = gathered and PLANES[node.op] or node.signature.ins
    node.ins = ordered.copy(node.ins)
    each_name(names, node.ins, function(name)
        local t = node.ins[name]
        if gathered and not t.octets then
            node.ins[name] = self:read("octets", t, node, attrs_of(node, name))
        elseif not gathered and t.octets and differs(t, node) then
            node.ins[name] = self:read("planes", t, node, { channels = t.shape[2], groups = 1 })
        end
    end)
end

function Copies:behind(node, gathered)
    local names = gathered and PLANES[node.op] or node.signature.outs
    each_name(names, node.outs, function(name)
        local t = node.outs[name].tensor
        if gathered and not t.octets then
            local a, s = attrs_of(node, name), t.shape
            self:write("planes", name, node, a, { s[1], filled(a.channels, a.groups), s[3], s[4] })
        elseif not gathered and t.octets and differs(t, node) then
            self:write("octets", name, node, { channels = t.shape[2], groups = 1 }, t.shape)
        end
    end)
end

function Copies:rewrite(body, config)
    local list = table.move(body, 1, #body, 1, {})
    for i = 1, #body do body[i] = nil end
    for _, node in ipairs(list) do
        self.body = body
        local gathered = node.op ~= "times" and gathers(node, config)
        if node.op == "times" then
            body[#body + 1] = node
            self:rewrite(node.body, config)
        elseif self.either[node] then
            body[#body + 1], node.octets = node, self.either[node].octets
        else
            node.octets = gathered or nil
            self:before(node, gathered)
            body[#body + 1] = node
            self:behind(node, gathered)
        end
    end
end

-- Takes out the nodes that rounded for convolutions alone.
local function take_out(g, skipped)
    local read = {}
    for _, name in ipairs(BODIES) do
        graph.walk(g[name], function(node)
            for _, t in ipairs(graph.reads(node)) do read[t] = true end
        end)
    end
    local function left(body)
        local list = ordered.collect(body, function(node)
            if node.op == "times" then left(node.body) end
            local t = node.statements and graph.result(node)
            return not (t and skipped[t] and not read[t]) and node or nil
        end)
        for i = 1, #body do body[i] = list[i] end
    end
    for _, name in ipairs(BODIES) do left(g[name]) end
    g.tensors = ordered.collect(g.tensors, function(t) return not (skipped[t] and not read[t]) and t or nil end)
end

function octets.run(g, config)
    if not (config.octets and g.half) then return true end
    local copies = setmetatable({ graph = g, builder = config.builder, either = choose(g, config), made = {},
        skipped = {}, writers = writers_of(g) }, Copies)
    for _, name in ipairs(BODIES) do copies:rewrite(g[name], config) end
    take_out(g, copies.skipped)
end

return octets
