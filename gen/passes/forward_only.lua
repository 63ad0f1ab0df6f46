-- forward_only: the graph of a program that only predicts (make predict): a copy of the nodes that the output follows
-- from, for one row, as an evaluation computes them. Passes after this one do not touch the copy.
--
--   y (16, 64) = linear(x (16, 64), w) ; z = dropout(y) ; loss = cross_entropy(z, target)
--   ->  y (1, 64) = linear(x (1, 64), w) ; z = y
--
-- Its parameters are records of their own, whose field `of` is the parameter of the program.
local build = require "graph.build"
local expr = require "base.expr"
local graph = require "graph.graph"
local ordered = require "base.ordered"

local forward_only = { name = "forward_only", doc = "a copy of the forward pass for one row, to predict" }

local Copier = {}
Copier.__index = Copier

-- === which nodes =================================================================================

-- Whether a node moves running statistics: an evaluation does not.
local function moves_statistics(node)
    for _, out in ipairs(graph.writes(node)) do
        if out.tensor.kind ~= "value" then return true end
    end
    return false
end

-- Adds to `needed` the tensors that those in it follow from, and to `kept` the nodes that compute them.
local function find_needed(body, needed, kept)
    for _, node in ipairs(ordered.reversed(body)) do
        local wanted = false
        for _, out in ipairs(graph.writes(node)) do wanted = wanted or needed[out.tensor] end
        for _, carry in ipairs(node.carries or {}) do
            wanted = wanted or needed[carry.out]
            if needed[carry.out] then needed[carry.result] = true end
        end
        if wanted and not moves_statistics(node) then
            kept[node] = true
            find_needed(node.body or {}, needed, kept)
            for _, t in ipairs(graph.reads(node)) do needed[t] = true end
        end
    end
end

-- === copies ======================================================================================

-- The parameter that nodes of the copy read, with the members of a joint one.
function Copier:param(param)
    if self.params[param] then return self.params[param] end
    local copy = { of = param, name = param.name, shape = param.shape,
        region = param.region and self.regions[param.region],
        count = param.count, first = param.first, at = param.at, views = {}, state = {}, kept = {}, used = true }
    self.params[param] = copy
    copy.members = param.members and ordered.collect(param.members, function(member)
        return { of = member, shape = member.shape }
    end)
    table.insert(param.members and self.g.joints or self.g.params, copy)
    return copy
end

-- The tensor in the place of another: of one row, where it has rows.
function Copier:tensor(t)
    if self.tensors[t] then return self.tensors[t] end
    local copy = { name = t.name, dtype = t.dtype, kind = t.kind, at = t.at, rowless = t.rowless, shape = t.shape,
        keep_full = t.keep_full, scope = t.scope and self.regions[t.scope], low = t.low, limit = t.limit }
    if not (graph.rowless(t) or t.dtype == "micro") then copy.shape = { 1, table.unpack(t.shape, 2) } end
    graph.tensor(self.g, copy)
    self.tensors[t] = copy
    if t.param then
        copy.param = self:param(t.param)
        copy.param.value = copy
    end
    return copy
end

-- Changes a node to what an evaluation computes.
local CHANGES = {}

function CHANGES.dropout(copy)
    copy.op, copy.size, copy.attrs, copy.views = "map", nil, {}, {}
    copy.ins = { x = copy.ins.x }
    copy.signature, copy.statements = { ins = { "x" }, outs = { "y" } }, { { "copy_out", expr.var "x" } }
end

function CHANGES.attend(copy)
    copy.attrs, copy.ins.micro = ordered.copy(copy.attrs, { dropout = 0 }), nil
end

local function one_group(copy) copy.attrs = ordered.copy(copy.attrs, { rows = 1 }) end
CHANGES.batchnorm, CHANGES.batchnorm_stats = one_group, one_group

function Copier:node(node)
    local copy = ordered.copy(node, { ins = {}, outs = {}, scope = node.scope and self.regions[node.scope] })
    if node.views then copy.views = ordered.copy(node.views) end
    for name, t in ordered.each(node.ins) do copy.ins[name] = self:tensor(t) end
    for name, out in ordered.each(node.outs) do
        local t = self:tensor(out.tensor)
        copy.outs[name] = { tensor = t, columns = out.columns }
        t.def = t.def or copy
    end
    if CHANGES[node.op] then CHANGES[node.op](copy) end
    if not copy.statements then copy.size = build.sizes(copy, self.ops[copy.op]) end
    return copy
end

function Copier:region(region)
    local copy = ordered.copy(region, { body = {}, carries = {}, scope = region.scope and self.regions[region.scope] })
    self.regions[region] = copy
    for i, carry in ipairs(region.carries) do
        local own = { region = copy, init = self:tensor(carry.init), arg = self:tensor(carry.arg) }
        own.arg.carry, copy.carries[i] = own, own
    end
    copy.body = self:body(region.body)
    for i, carry in ipairs(region.carries) do
        local own = copy.carries[i]
        own.result, own.out = self:tensor(carry.result), self:tensor(carry.out)
        own.result.carried, own.out.carry_out, own.out.def = own, own, copy
    end
    return copy
end

function Copier:body(body)
    return ordered.collect(body, function(node)
        if not self.kept[node] then return nil end
        return node.op == "times" and self:region(node) or self:node(node)
    end)
end

-- === the graph ===================================================================================

-- Why there is no such graph; nil: there is one.
local function obstacle(g, config, needed)
    if not g.output then return "the model gives several tensors, expected one" end
    if needed[g.inputs[#g.inputs]] then return "the model reads batch.target, which rows to predict do not have" end
    if g.output.kind ~= "value" or graph.rowless(g.output) or g.output.shape[1] ~= config.batch then
        return "the model gives no row for each row of the batch"
    end
end

function forward_only.run(g, config)
    local needed, kept = {}, {}
    if g.output then
        needed[g.output] = true
        find_needed(g.forward, needed, kept)
    end
    g.forward_only = obstacle(g, config, needed)
    if g.forward_only then return true end
    local own = graph.new(g.name)
    local copier = setmetatable({ g = own, ops = config.ops, kept = kept, tensors = {}, params = {}, regions = {} },
        Copier)
    for i, t in ipairs(g.inputs) do own.inputs[i] = copier:tensor(t) end
    own.micro = copier:tensor(g.micro)
    own.forward = copier:body(g.forward)
    own.output = copier:tensor(g.output)
    own.loss, own.sharded = {}, {}
    g.forward_only = own
    return true
end

return forward_only
