-- cuda_ops: template arguments of the CUDA target besides the shared ones of emit/kernels, and the launch of each op:
-- { blocks, threads }, one-dimensional, in whole warps, a function of the shapes alone.
local attention = require "emit.kernels.attention"
local batchnorm = require "emit.kernels.batchnorm"
local c_text = require "emit.targets.c_text"
local columns = require "emit.targets.cuda.columns"
local conv = require "emit.kernels.conv"
local few = require "emit.targets.cuda.few"
local graph = require "graph.graph"
local launches = require "emit.targets.cuda.launches"
local loss = require "emit.kernels.loss"
local norm = require "emit.kernels.norm"
local of_attention = require "emit.targets.cuda.ops_attention"
local of_batchnorm = require "emit.targets.cuda.ops_batchnorm"
local of_planes = require "emit.targets.cuda.ops_conv"
local ops = require "emit.targets.ops"
local pool = require "emit.kernels.pool"
local product = require "emit.targets.cuda.product"
local rows = require "emit.targets.cuda.rows"
local shape = require "emit.kernels.shape"
local tensor = require "emit.targets.cuda.tensor"
local text = require "base.text"

local THREADS = launches.THREADS

local list = ops.shared(shape, attention, conv, pool, batchnorm, norm, loss)
local function add(name, more) ops.add(list, name, more) end
local function set(name, entry) list[name] = entry end
local function launch(how, ...)
    for _, name in ipairs { ... } do list[name].launch = how end
end

local ceil, over, per_row = launches.ceil, launches.over, launches.per_row

local function element(t, spelling) return text.block(c_text.load(t, spelling)) end

local function rows_of(node) return graph.elements(node.size.lead or {}) end

-- === pointwise and products ======================================================================

-- A thread for each few elements that are moved at once.
set("map", { launch = function(node, dtype)
    local moved = few.pointwise(node, {}, dtype)
    return over(ceil(graph.elements(graph.result(node).shape), moved and moved.count or 1))
end })

-- The sums of dy beside the gradient of a weight, or false without that of a bias: those of an operand over the terms.
--   array, extent    a or b, rows or columns of its tile
--   first, across    the first row (column) of a block's tile; its place in the other direction
--   count, store     how many sums there are; the statement that stores sum n, `total`
local function sums_of(kernel, node)
    if not node.outs.bias then return false end
    local side = node.op == "linear_dw" and { "a", "ROWS", "i0", "j0" } or { "b", "COLUMNS", "j0", "i0" }
    return { array = text.ident(side[1]), extent = text.ident(side[2]), first = text.ident(side[3]),
        across = text.ident(side[4]), count = node.size.N, store = c_text.store(kernel, "bias[n]", "total") }
end

for _, name in ipairs { "linear", "linear_dx", "linear_dw", "linear_in_out", "linear_in_out_dx",
    "linear_in_out_dw" } do
    set(name, { arguments = function(kernel, node, op, dtype)
        local sizes, has_bias, sums = op.gemm(node), node.ins.bias ~= nil, sums_of(kernel, node)
        if tensor.computes(sizes, kernel) then return tensor.product(sizes, kernel, has_bias, sums) end
        return product(sizes, kernel, has_bias, dtype, sums)
    end, launch = launches.by_tiles, blocks = { "linear", "tensor" },
        block = function(kernel) return kernel.matrix and "tensor" or "linear" end,
        helper = function(_, kernel) return kernel.matrix and tensor.HELPERS end })
end

set("pack_in_out", { arguments = function(_, node) return shape.pack_in_out(node, "tile[lane][i]") end,
    launch = function(node) return { blocks = ceil(node.size.N, 32) * ceil(node.size.K, 32), threads = THREADS } end })

of_attention(list)

-- === norms =======================================================================================

for _, name in ipairs { "layernorm", "rmsnorm", "norm_dx", "softmax", "softmax_dx", "log_softmax",
    "log_softmax_dx" } do
    add(name, name == "norm_dx" and rows.arguments_behind or name:find "_dx$" and rows.gradient_arguments
        or rows.arguments)
    list[name].helper = name == "norm_dx" and "rows:half row_sums" or "rows:half"
    list[name].launch = rows.launch
end
add("layernorm", function(arguments, node) arguments.bias, arguments.y_half = node.ins.bias ~= nil, nil end)

add("norm_dw", function(arguments, node, kernel, _, dtype)
    local parts = node.attrs.parts or 1
    arguments.parts, arguments.rows = parts, arguments.rows // parts
    arguments.few, arguments.store = columns.few(node, node.size.C, dtype), c_text.store(kernel, "y[at]", "value")
end)
list.norm_dw.helper = "rows:half"
launch(function(node, dtype) return columns.launch(node, node.attrs.parts or 1, node.size.C, dtype) end, "norm_dw")

of_batchnorm(list)

-- === planes ======================================================================================

of_planes(list)

-- Each place sums the gradients of the windows that contain it.
local function add_seen(arguments, node, kernel)
    arguments.seen, arguments.store = pool.seen(node.attrs), c_text.store(kernel, "y[i]", "value")
end

add("maxpool2d_dx", function(arguments, node, kernel)
    arguments.d = element(node.ins.dy, "dy[first + p * Q + q]")
    add_seen(arguments, node, kernel)
end)
add("avgpool2d_dx", function(arguments, node, kernel)
    arguments.type, arguments.d = c_text.type_of(node.ins.dy), element(node.ins.dy, "d[p * Q + q]")
    add_seen(arguments, node, kernel)
end)
launch(function(node)
    local s = node.size
    return launches.full(s.B * s.C * s.P * s.Q)
end, "maxpool2d", "avgpool2d", "pad2d")
launch(function(node)
    local s = node.size
    return launches.full(s.B * s.C * s.H * s.W)
end, "maxpool2d_dx", "avgpool2d_dx")

-- === rows ========================================================================================

local function axis_sum(kernel, node, _, dtype)
    local arguments = shape.axis_sum(kernel, node, dtype, "row[j]")
    if shape.by_rows(node) then return arguments end
    arguments.few, arguments.type, arguments.term = columns.few(node, node.size.inner, dtype), nil, nil
    return arguments
end

local function by_columns(node, dtype) return columns.launch(node, node.size.outer, node.size.inner, dtype) end

local function sum_helper(node) return not shape.by_rows(node) and "rows:half" or nil end

set("column_sum", { arguments = axis_sum, launch = by_columns, helper = sum_helper })
set("norm_sums", { launch = by_columns, helper = sum_helper, arguments = function(kernel, node, op, dtype)
    local list, C = axis_sum(kernel, node, op, dtype), node.size.C
    if node.outs.bias then
        list.store = text.block(("real &to = i < %d ? y[i] : bias[i - %d];\n%s"):format(C, C,
            c_text.store(kernel, "to", "value").text))
    end
    return list
end })
set("axis_sum", { arguments = axis_sum, helper = sum_helper, launch = function(node, dtype)
    return node.size.inner == 1 and per_row(node.size.outer, node.size.n) or by_columns(node, dtype)
end })

-- Arguments that read a row of logits as x = row[c], and one element as `name`.
local function add_row(name, spelling)
    return function(arguments, node)
        local logits = node.ins.logits
        arguments.type, arguments.x = c_text.type_of(logits), element(logits, "row[c]")
        arguments[name] = element(logits, spelling)
    end
end
add("hit", add_row("best", "row[best]"))
add("top_hit", add_row("own", "row[target[i]]"))

-- Classes that a thread moves at once: rows begin anywhere, unless a node sees only some, whose first is another each
-- time.
local function neighbours(node, tensors, dtype) return few.of_rows(tensors, node.run and node.size.C or 0, dtype) end

add("cross_entropy", function(arguments, node, _, _, dtype)
    local logits = node.ins.logits
    arguments.hit, arguments.few = element(logits, "row[target[i]]"), neighbours(node, { logits }, dtype)
    arguments.type = c_text.type_of(logits)
end)
add("cross_entropy_dx", function(arguments, node, kernel, _, dtype)
    arguments.few = neighbours(node, { node.ins.logits, node.outs.y.tensor }, dtype)
    arguments.adds, arguments.type = kernel.can_add or false, c_text.type_of(node.ins.logits)
    arguments.out, arguments.logit, arguments.store = c_text.type_of(node.outs.y.tensor), nil, nil
end)
list.cross_entropy.helper, list.cross_entropy_dx.helper = "rows:half wide", "rows:half wide"

set("embedding", { arguments = function(_, node)
    return shape.embedding(node, "weight[(ga_int64)ids[(int)i / C] * C + (int)i % C]")
end, launch = function(node) return over(graph.elements(node.size.lead) * node.size.C) end })
set("embedding_dw", { arguments = function(kernel, node)
    return shape.embedding_dw(kernel, node, "dy[(ga_int64)order[k] * C + c]")
end, launch = function(node) return per_row(node.size.R, node.size.C) end })
add("id_order", function(arguments) arguments.own = THREADS end)
launch(function(node) return { blocks = ceil(node.size.F - 1, THREADS), threads = THREADS } end, "id_order")

launch(function(node) return per_row(rows_of(node), node.size.C) end, "cross_entropy", "cross_entropy_dx")
launch(function(node) return { blocks = rows_of(node), threads = 32 } end, "hit", "top_hit")
launch(function(node) return { blocks = 1, threads = over(rows_of(node)).threads } end,
    "tally", "tally_hits", "tally_errors", "tally_spread", "micro_weight")
launch(function(node) return { blocks = 1, threads = over(node.ins.values.shape[1]).threads } end, "tally_values")
launch(function(node) return over(rows_of(node)) end, "loss_seed")
launch(function(node) return over(node.size.outer * node.size.inner) end, "axis_max")
launch(function(node) return over(graph.elements(node.size.S)) end, "axis_max_dx", "slice_dx", "concat", "accumulate",
    "accumulate_half")
launch(function(node) return over(graph.elements(node.ins.x.shape)) end, "dropout", "copy")
list.accumulate_half.helper = function(node) return node.ins.micro and "narrow_between" end

return list
