-- precision: replaces the type "real" by the program's type. With bf16 or f16, activations, their gradients, and the
-- views of weights for products are stored in 16 bits; everything else, and all arithmetic, is f32.
--
--   y real (16, 64)       ->  y f32 (16, 64)
--   y = softmax(x)        ->  x_f32 = x ; y_f32 = softmax(x_f32) ; y = y_f32       with x, y bf16
--
-- A value is rounded once, where it is stored. Pointwise kernels read and write 16 bits themselves. For other ops the
-- catalog lists the 16-bit operands (`half`), the target ops that write more (config.writes_half); for all others a
-- pointwise node beside the op converts. The inputs of a product are always 16 bits: a batch is rounded first, and
-- weights get a view (passes/layout.lua).
local diag = require "base.diag"
local expr = require "base.expr"
local graph = require "graph.graph"
local ordered = require "base.ordered"

local precision = { name = "precision", doc = "a concrete type for every tensor" }

local BODIES = { "forward", "evaluation", "backward" }

-- Sets the 16-bit type for the values that nodes write and regions carry.
local function choose(body, half)
    local function store(t)
        if t.kind == "value" and t.dtype == "real" and not t.keep_full then t.dtype = half end
    end
    graph.walk(body, function(node)
        for _, out in ipairs(graph.writes(node)) do store(out.tensor) end
        for _, c in ipairs(node.carries or {}) do
            store(c.arg)
            store(c.out)
        end
    end)
end

local Casts = {}
Casts.__index = Casts

-- Appends a node to the new body that converts t to another type; returns its result.
function Casts:cast(t, dtype, name, node)
    local b = self.builder
    b.at, b.path, b.body, b.scope = node.at, {}, self.body, node.scope
    return b:cast(t, dtype, name)
end

-- Converts an input of a node to the type that its kernel reads.
function Casts:read(node, op, name)
    local t = node.ins[name]
    local takes_half = op.half and op.half[name]
    if graph.is_half(t) and not takes_half then
        node.ins[name] = self:cast(t, "f32", t.name .. "_f32", node)
        node.ins[name].cast = true
    elseif t.dtype == "f32" and t.kind ~= "param" and takes_half and op.rounds then
        node.ins[name] = self:cast(t, self.half, t.name .. "_" .. self.half, node)
        node.ins[name].cast = true
    end
end

-- Converts an output of a node: a kernel that cannot write 16 bits writes an f32 value, and a second node rounds it,
-- or adds it, to the true output.
function Casts:write(node, op, name)
    local out = node.outs[name]
    local t = out.tensor
    local own = self.writes_half[node.op]
    if not graph.is_half(t) or op.half and op.half[name] or own and own(node) then return end
    local written = graph.tensor(self.graph, { name = t.name .. "_f32", shape = t.shape, dtype = "f32",
        kind = "value", at = node.at, def = node, scope = node.scope, rowless = t.rowless, cast = true })
    node.outs[name] = { tensor = written }
    self:cast(written, self.half, t.name, node)
    local rounding = self.body[#self.body]
    rounding.outs.y = { tensor = t, acc = out.acc }
    if t.def == node then t.def, t.rounds = rounding, written end
end

-- Turns a copy to 16 bits into a pointwise node, since it rounds and may add.
local function as_map(node)
    if node.op ~= "copy" or not graph.is_half(node.outs.y.tensor) then return end
    node.op, node.statements, node.views, node.attrs = "map", { { "copy_out", expr.var "x" } }, {}, {}
    return true
end

function Casts:rewrite(body)
    local list = table.move(body, 1, #body, 1, {})
    for i = 1, #body do body[i] = nil end
    for _, node in ipairs(list) do
        self.body = body
        if node.op == "times" then
            for _, c in ipairs(node.carries) do
                if graph.is_half(c.arg) and not graph.is_half(c.init) then
                    c.init = self:cast(c.init, self.half, c.init.name .. "_" .. self.half, node)
                end
            end
            body[#body + 1] = node
            self:rewrite(node.body)
        elseif node.statements or as_map(node) then
            body[#body + 1] = node
        else
            local op = self.ops[node.op]
            node.ins = ordered.copy(node.ins)
            for _, name in ipairs(node.signature.ins) do
                if node.ins[name] then self:read(node, op, name) end
            end
            body[#body + 1] = node
            for _, name in ipairs(node.signature.outs) do
                if node.outs[name] then self:write(node, op, name) end
            end
        end
    end
end

-- parallel.force_outputs_fp32: the model's output is not rounded to 16 bits.
local function widen_output(g, config)
    local output = g.output
    if not config.force_outputs_fp32 or not output then return end
    if output.carried or output.carry or output.carry_out then
        diag.fail(config.parallel_at, "parallel: force_outputs_fp32: the model gives what a `times` carries, which "
            .. "is 16 bits, expected a layer behind it", {})
    end
    output.keep_full = true
end

function precision.run(g, config)
    g.real = config.precision == "f64" and "f64" or "f32"
    g.half = config.precision ~= g.real and config.precision or nil
    if g.half then
        widen_output(g, config)
        for _, name in ipairs(BODIES) do choose(g[name], g.half) end
    end
    for _, tensor in ipairs(g.tensors) do
        if tensor.dtype == "real" then tensor.dtype = g.real end
    end
    if not g.half then return true end
    local casts = setmetatable({ graph = g, builder = config.builder, ops = config.ops, half = g.half,
        writes_half = config.writes_half }, Casts)
    for _, name in ipairs(BODIES) do casts:rewrite(g[name]) end
end

return precision
