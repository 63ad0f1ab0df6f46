-- onnx_ops: how nodes of the graph become nodes of ONNX (opset 17), as an evaluation computes them: one function for
-- each op, of the file (onnx_file.lua), the node, and the names of its inputs' values; it returns that of the result.
local attention = require "command.export.onnx_attention"
local diag = require "base.diag"
local expressions = require "command.export.onnx_expressions"
local graph = require "graph.graph"
local match = require "command.export.match"
local ordered = require "base.ordered"

local ops = { attend = attention.attend, rotary = attention.rotary }

-- Ops whose result nothing in an evaluation reads but the op beside them.
local function nothing() return "" end
ops.batchnorm_stats = nothing

function ops.copy(file, _, ins) return file:node("Identity", { ins.x }) end

function ops.dropout(_, _, ins) return ins.x end

-- Pointwise ops that ONNX has under a name of its own.
local NAMED = { relu = "Relu", sigmoid = "Sigmoid" }

function ops.map(file, node, ins)
    local named = NAMED[match.rule(node)]
    if named then return file:node(named, { ins[node.signature.ins[1]] }) end
    local env, result = ordered.copy(ins), nil
    for _, statement in ipairs(node.statements) do
        result = expressions(file, statement[2], env, node.at)
        env[statement[1]] = result
    end
    return result
end

-- -- products -------------------------------------------------------------------------------------

local function product(file, node, ins, turned)
    if #node.ins.x.shape == 2 then
        return file:node("Gemm", { ins.x, ins.weight, ins.bias }, { transB = turned and 1 or 0 })
    end
    local weight = turned and file:node("Transpose", { ins.weight }, { perm = { 1, 0 } }) or ins.weight
    local y = file:node("MatMul", { ins.x, weight })
    return ins.bias and file:node("Add", { y, ins.bias }) or y
end

function ops.linear(file, node, ins) return product(file, node, ins, true) end

function ops.linear_in_out(file, node, ins) return product(file, node, ins, false) end

function ops.embedding(file, _, ins) return file:node("Gather", { ins.weight, ins.ids }, { axis = 0 }) end

-- Both ends of two axes: { before, before, behind, behind }.
local function twice(pair) return { pair[1], pair[2], pair[1], pair[2] } end

function ops.conv2d(file, node, ins)
    local a = node.attrs
    return file:node("Conv", { ins.x, ins.weight, ins.bias }, { kernel_shape = a.window, strides = a.stride,
        pads = twice(a.padding), dilations = a.dilation, group = a.groups })
end

-- -- norms and pools --------------------------------------------------------------------------------

function ops.layernorm(file, node, ins)
    return file:node("LayerNormalization", { ins.x, ins.weight, ins.bias }, { axis = -1,
        epsilon = node.attrs.eps + 0.0 })
end

function ops.rmsnorm(file, node, ins)
    local square = file:node("Mul", { ins.x, ins.x })
    local average = file:node("ReduceMean", { square }, { axes = { -1 }, keepdims = 1 })
    local root = file:node("Sqrt", { file:node("Add", { average, file:constant("f32", node.attrs.eps) }) })
    return file:node("Mul", { file:node("Div", { ins.x, root }), ins.weight })
end

-- The running estimates are inputs of the node that computes the statistics.
function ops.batchnorm(file, node, ins, value_of)
    local stats = node.ins.mean.def.ins
    return file:node("BatchNormalization", { ins.x, ins.weight, ins.bias, value_of(stats.running_mean),
        value_of(stats.running_var) }, { epsilon = node.attrs.eps + 0.0 })
end

function ops.maxpool2d(file, node, ins)
    local a = node.attrs
    return file:node("MaxPool", { ins.x }, { kernel_shape = a.window, strides = a.stride, pads = twice(a.padding) })
end

function ops.avgpool2d(file, node, ins)
    local a = node.attrs
    if a.window then
        return file:node("AveragePool", { ins.x }, { kernel_shape = a.window, strides = a.stride,
            pads = twice(a.padding), count_include_pad = a.include_padding and 1 or 0 })
    elseif a.height % a.rows ~= 0 or a.width % a.columns ~= 0 then
        diag.fail(node.at, ("export --onnx: adaptive_avgpool2d of %d x %d places to %d x %d has no form in ONNX: its "
            .. "windows differ"):format(a.height, a.width, a.rows, a.columns), {})
    end
    local window = { a.height // a.rows, a.width // a.columns }
    return file:node("AveragePool", { ins.x }, { kernel_shape = window, strides = window })
end

function ops.pad2d(file, node, ins)
    local a = node.attrs
    return file:node("Pad", { ins.x, file:constant("i64", { 0, 0, a.top, a.left, 0, 0, a.bottom, a.right }),
        file:constant("f32", a.value) })
end

-- -- shapes and reductions --------------------------------------------------------------------------

-- The extents of a shape for Reshape: 0 keeps the rows of the batch.
local function extents(file, shape, rowless)
    local list = ordered.copy(shape)
    if not rowless then list[1] = 0 end
    return file:constant("i64", list)
end

function ops.reshape(file, node, ins)
    return file:node("Reshape", { ins.x, extents(file, node.attrs.shape, graph.rowless(node.ins.x)) })
end

function ops.detach(_, _, ins) return ins.x end

-- The rows of the batch are those of one of the inputs.
function ops.each_row(file, node, ins)
    local rows, shape = file:node("Shape", { file.input }, { start = 0, ["end"] = 1 }), node.attrs.shape
    local others = #shape > 1 and file:constant("i64", table.move(shape, 2, #shape, 1, {})) or nil
    return file:node("Expand", { ins.x, file:node("Concat", { rows, others }, { axis = 0 }) })
end

local function from_zero(axes) return ordered.collect(axes, function(axis) return axis - 1 end) end

function ops.transpose(file, node, ins)
    return file:node("Transpose", { ins.x }, { perm = from_zero(node.attrs.order) })
end

function ops.slice(file, node, ins)
    local a = node.attrs
    local axis = file:constant("i64", { a.axis - 1 })
    local y = file:node("Slice", { ins.x, file:constant("i64", { a.first - 1 }), file:constant("i64", { a.last }),
        axis })
    return a.drop and file:node("Squeeze", { y, axis }) or y
end

function ops.concat(file, node, ins) return file:node("Concat", { ins.a, ins.b }, { axis = node.attrs.axis - 1 }) end

local function reduced_axes(node)
    local axes = {}
    for axis = node.attrs.first, node.attrs.last do axes[#axes + 1] = axis - 1 end
    return axes, #node.attrs.shape == #node.ins.x.shape and 1 or 0
end

function ops.axis_sum(file, node, ins)
    local axes, kept = reduced_axes(node)
    if node.attrs.mean then return file:node("ReduceMean", { ins.x }, { axes = axes, keepdims = kept }) end
    return file:node("ReduceSum", { ins.x, file:constant("i64", axes) }, { keepdims = kept })
end

function ops.axis_max(file, node, ins)
    local axes, kept = reduced_axes(node)
    return file:node("ReduceMax", { ins.x }, { axes = axes, keepdims = kept })
end

function ops.softmax(file, _, ins) return file:node("Softmax", { ins.x }, { axis = -1 }) end

function ops.log_softmax(file, _, ins) return file:node("LogSoftmax", { ins.x }, { axis = -1 }) end

return ops
