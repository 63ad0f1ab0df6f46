-- onnx: a model as an ONNX file, as an evaluation computes it: no dropout, running estimates of batchnorm, f32. Loops
-- are written out layer by layer; the number of rows is free.
local diag = require "base.diag"
local graph = require "graph.graph"
local onnx_file = require "command.export.onnx_file"
local ops = require "command.export.onnx_ops"
local ordered = require "base.ordered"
local written = require "command.written"

local MOST_BYTES = 2147483647       -- of a protobuf message

-- The nodes and inputs that a tensor depends on, as sets.
local function needed_for(output)
    local nodes, seen = {}, {}
    local function need(tensor)
        if seen[tensor] then return end
        seen[tensor] = true
        local node, carry = tensor.def, tensor.carry_out
        if carry then
            nodes[carry.region] = true
            need(carry.init)
            need(carry.result)
        elseif node then
            nodes[node] = true
            for _, read in ipairs(graph.reads(node)) do need(read) end
        end
    end
    need(output)
    return nodes, seen
end

local Writer = {}
Writer.__index = Writer

-- The name of the value of a tensor in the present iteration.
function Writer:value(tensor)
    local param = tensor.param
    if not param then return self.names[tensor] end
    local layer = param.region and self.layer or 0
    local stored = self.m:tensor(param, layer)
    return self.file:tensor(param.name:format(param.first + layer), "f32", param.shape, function()
        return stored:floats()
    end)
end

function Writer:node(node)
    local write = ops[node.op]
    if not write then diag.fail(node.at, ("export --onnx: '%s' has no form in ONNX"):format(node.op), {}) end
    local ins = {}
    for _, name in ipairs(node.signature.ins) do
        local tensor = node.ins[name]
        ins[name] = tensor and self:value(tensor)
    end
    local result = write(self.file, node, ins, function(tensor) return self:value(tensor) end)
    self.names[graph.result(node)] = result
end

function Writer:loop(region)
    local carry = region.carries[1]
    self.names[carry.arg] = self:value(carry.init)
    for layer = 0, region.count - 1 do
        self.layer = layer
        self:body(region.body)
        self.names[carry.arg] = self.names[carry.result]
    end
    self.names[carry.out] = self.names[carry.arg]
end

function Writer:body(body)
    for _, node in ipairs(body) do
        if self.needed[node] and node.op == "times" then
            self:loop(node)
        elseif self.needed[node] then
            self:node(node)
        end
    end
end

--- Writes the model m (model.lua) into the file at `path`. Returns a line for people.
return function(m, path)
    local g = m.g
    if not g.output then
        diag.fail(g.loss.at, "export --onnx: the model has several outputs, expected one", {})
    end
    local needed, seen = needed_for(g.output)
    local w = setmetatable({ m = m, file = onnx_file.new(), needed = needed, names = {} }, Writer)
    local inputs = ordered.collect(g.inputs, function(input)
        if not seen[input] then return nil end
        w.names[input] = input.name
        return { name = input.name, dtype = input.dtype == "i32" and "i32" or "f32", shape = input.shape }
    end)
    w.file.input = inputs[1].name
    w:body(g.forward)
    w.file:node("Identity", { w:value(g.output) }, nil, "output")
    local bytes = w.file:bytes(m.program, inputs, { name = "output", dtype = "f32", shape = g.output.shape })
    if #bytes > MOST_BYTES then
        diag.fail(path, ("the model has %d bytes, and an ONNX file at most %d"):format(#bytes, MOST_BYTES), {})
    end
    written(path, bytes)
    return ("%s: %d nodes, %d tensors, opset 17"):format(diag.escape(path), #w.file.nodes, w.file.tensors:size())
end
