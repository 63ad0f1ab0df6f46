-- match: follows the graph of a model backwards, from its output to its inputs, and says where it is not of the form
-- that a file format knows. Dropouts are passed over; their probabilities are kept.
local diag = require "base.diag"
local graph = require "graph.graph"

local match = {}

local Match = {}
Match.__index = Match

--- A match of the model of graph g with the form of this name, for people.
function match.new(g, form)
    return setmetatable({ g = g, form = form, drops = {}, eps = nil }, Match)
end

--- The rule of a pointwise node, for example "add"; nil: `node` is none.
function match.rule(node) return node and node.op == "map" and node.attrs.rule and node.attrs.rule.entry.name or nil end

local function name_of(node)
    if not node then return "an input" end
    return node.op == "times" and "a times" or "'" .. (match.rule(node) or node.op) .. "'"
end

--- Refuses the model: `what` of the form has no place for this node; nil: for an input, or the start of an iteration.
function Match:refuse(node, what, expected)
    diag.fail(node and node.at or self.g.loss.at, ("export: %s found where %s has %s: expected %s"):format(
        name_of(node), self.form, what, expected), {})
end

--- Refuses an option of a node.
function Match:refuse_option(node, message, ...)
    diag.fail(node.at, ("export: %s"):format(message:format(...)), { notes = { self.form .. " has no place for it" } })
end

--- The tensor behind dropouts; `kind` says under which name their probability is kept.
function Match:behind_dropout(tensor, kind)
    while tensor.def and tensor.def.op == "dropout" do
        local p = tensor.def.attrs.p
        if self.drops[kind] and self.drops[kind] ~= p then
            self:refuse_option(tensor.def, "dropout of %g and of %g at the same place of the form", self.drops[kind], p)
        end
        self.drops[kind], tensor = p, tensor.def.ins.x
    end
    return tensor
end

--- The node that makes a tensor: one of these ops or rules, or nothing else of the form fits.
function Match:node(tensor, what, ...)
    local node = tensor.def
    for _, wanted in ipairs { ... } do
        if node and (node.op == wanted or match.rule(node) == wanted) then return node end
    end
    self:refuse(node, what, table.concat({ ... }, " or "))
end

--- The inputs of a pointwise node of two tensors.
function Match:operands(node, what)
    local list = graph.reads(node)
    if #list ~= 2 then self:refuse(node, what, "two tensors") end
    return list[1], list[2]
end

--- A linear layer: { x, weight, bias, out, width, in_out, node }, the parameters of the graph; bias may be nil.
function Match:linear(tensor, what)
    local node = self:node(tensor, what, "linear", "linear_in_out")
    return { node = node, x = node.ins.x, weight = node.ins.weight.param, bias = node.ins.bias and node.ins.bias.param,
        width = node.size.K, out = node.size.N, in_out = node.op == "linear_in_out" }
end

--- A norm: { x, weight, bias, node }; all norms of the form have one eps.
function Match:norm(tensor, what, op)
    local node = self:node(tensor, what, op)
    if self.eps and self.eps ~= node.attrs.eps then
        self:refuse_option(node, "eps is %g here and %g in another norm", node.attrs.eps, self.eps)
    end
    self.eps = node.attrs.eps
    return { node = node, x = node.ins.x, weight = node.ins.weight.param, bias = node.ins.bias and node.ins.bias.param }
end

--- A sum of a linear layer's result, dropped out or not, and of the stream: the layer, the stream.
function Match:residual(tensor, what)
    local node = self:node(tensor, what, "add")
    local a, b = self:operands(node, what)
    for _, pair in ipairs { { a, b }, { b, a } } do
        local branch = self:behind_dropout(pair[1], "hidden")
        local op = branch.def and branch.def.op
        if op == "linear" or op == "linear_in_out" then return self:linear(branch, what), pair[2] end
    end
    self:refuse(a.def, what, "a linear layer added to the stream")
end

--- The loop whose result a tensor is: { region, arg = tensor at the begin of an iteration, init, result }.
function Match:loop(tensor, what)
    local carry = tensor.carry_out
    if not carry then self:refuse(tensor.def, what, "a times of equal blocks") end
    return { region = carry.region, arg = carry.arg, init = carry.init, result = carry.result }
end

--- Refuses a tensor that is not `wanted`.
function Match:same(tensor, wanted, what, expected)
    if tensor ~= wanted then self:refuse(tensor.def, what, expected) end
end

--- An attention: its node; `causal` is demanded of it, and that of all heads are the same.
function Match:attend(tensor, causal)
    local node = self:node(tensor, "its attention", "attend")
    local a = node.attrs
    if a.causal ~= causal then
        self:refuse_option(node, causal and "attend without causal = true" or "attend with causal = true")
    elseif causal and node.ins.mask then
        self:refuse_option(node, "attend with a mask")
    end
    self.drops.attention = a.dropout
    return node
end

local ACTIVATIONS = { gelu = true, relu = true, silu = true, tanh = true }

--- An activation: its name as transformers has it, and its input.
function Match:activation(tensor, what)
    local node = tensor.def
    local rule = match.rule(node)
    if not ACTIVATIONS[rule] then self:refuse(node, what, "gelu, relu, silu or tanh") end
    local list = graph.reads(node)
    return rule == "gelu" and node.attrs.rule.fields.form == "tanh" and "gelu_new" or rule, list[1]
end

--- The places that a model with a table of positions was trained on, and the rows of the table.
function Match:positions(node)
    local table_of = node.ins.x2
    if table_of.def then table_of = table_of.def.ins.x end
    return table_of.param
end

return match
