-- cuda_ops: template arguments of the CUDA target besides the shared ones of emit/kernels, and the launch of each op:
-- { blocks, threads }, one-dimensional, in whole warps, a function of the shapes alone.
local attention = require "emit.kernels.attention"
local batchnorm = require "emit.kernels.batchnorm"
local batchnorms = require "emit.targets.cuda.ops_batchnorm"
local c_text = require "emit.targets.c_text"
local columns = require "emit.targets.cuda.columns"
local conv = require "emit.kernels.conv"
local few = require "emit.targets.cuda.few"
local graph = require "graph.graph"
local launches = require "emit.targets.cuda.launches"
local loss = require "emit.kernels.loss"
local norm = require "emit.kernels.norm"
local of_attention = require "emit.targets.cuda.ops_attention"
local of_embeddings = require "emit.targets.cuda.ops_embedding"
local of_planes = require "emit.targets.cuda.ops_conv"
local ops = require "emit.targets.ops"
local ordered = require "base.ordered"
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

-- A thread for each few elements that are moved at once. The number of elements is an argument of the kernel.
set("map", { launch = function(node, dtype)
    local moved = few.pointwise(node, {}, dtype)
    return over(ceil(graph.elements(graph.result(node).shape), moved and moved.count or 1))
end, sizes = function(_, node)
    local n = graph.elements(graph.written(graph.writes(node)[1]))
    return { kind = "_n", types = "", list = { { "ga_int64 n", tostring(n) } } }
end })

-- The sums of dy beside the gradient of a weight, or false without that of a bias: those of an operand over the terms.
--   array, extent    a or b, rows or columns of its tile
--   first, across    the first row (column) of a block's tile; its place in the other direction
--   count, number    how many sums there are, as text; the number
--   store            the statement that stores sum n, `total`, on tensor cores number e of four neighbours; rest: the
--                    argument that says how many these are, if not all
local function sums_of(kernel, node, matrix)
    if not node.outs.bias then return false end
    local side = node.op == "linear_dw" and { "a", "ROWS", "i0", "j0" } or { "b", "COLUMNS", "j0", "i0" }
    local count = matrix and (side[1] == "a" and "size.M" or "size.N") or tostring(node.size.N)
    return { array = text.ident(side[1]), extent = text.ident(side[2]), first = text.ident(side[3]),
        across = text.ident(side[4]), count = text.block(count), number = node.size.N,
        rest = text.block(node.size.N % 4 > 0 and (", %s - n"):format(count) or ""),
        store = c_text.store(kernel, matrix and "to.at[e]" or "bias[n]", matrix and "total.at[e]" or "total") }
end

-- The dropout of a product's result, or false:
--   p, name          its probability and the name of its draws
--   rows             of the product for each row of the batch
--   value            the text of the result, `value`, as it would be stored
local function drops_of(node, rounded)
    local drops = node.drops
    if not drops then return false end
    local shape = graph.result(node).shape
    return { p = text.number(drops.p, "f64"), name = text.string(drops.name),
        rows = graph.elements(node.size.lead) // shape[1],
        value = text.block(drops.half and rounded .. "(value)" or "value") }
end

for _, name in ipairs { "linear", "linear_dx", "linear_dw", "linear_in_out", "linear_in_out_dx",
    "linear_in_out_dw" } do
    set(name, { arguments = function(kernel, node, op, dtype)
        local sizes, has_bias = op.gemm(node), node.ins.bias ~= nil
        local matrix = tensor.computes(sizes, kernel)
        local sums = sums_of(kernel, node, matrix)
        local drops = drops_of(node, matrix and "ga_rounded" or (kernel.half or "") .. "_rounded")
        if matrix then return tensor.product(sizes, kernel, has_bias, sums, drops) end
        return product(sizes, kernel, has_bias, dtype, sums, drops)
    end, sizes = function(kernel, node, op)
        local sizes = op.gemm(node)
        return tensor.computes(sizes, kernel) and tensor.sizes(sizes, kernel, op) or nil
    end, launch = launches.by_tiles, blocks = { "linear", "tensor" },
        block = function(kernel) return kernel.matrix and "tensor" or "linear" end,
        helper = function(node, kernel)
            return (kernel.matrix and tensor.HELPERS or "") .. (node.drops and " rng draws" or "")
        end })
end

set("pack_in_out", { arguments = function(_, node) return shape.pack_in_out(node, "tile[lane][i]") end,
    launch = function(node) return { blocks = ceil(node.size.N, 32) * ceil(node.size.K, 32), threads = THREADS } end })

of_attention(list)

-- === norms =======================================================================================

for _, name in ipairs { "layernorm", "rmsnorm", "norm_dx", "softmax", "softmax_dx", "log_softmax",
    "log_softmax_dx" } do
    add(name, name == "norm_dx" and rows.arguments_behind or name:find "_dx$" and rows.gradient_arguments
        or rows.arguments)
    list[name].helper = "elements:half rows" .. (name == "norm_dx" and " row_sums" or name:find "softmax$"
        and " row_largest" or "")
    list[name].launch = rows.launch
end
list.norm_dx.sizes = rows.sizes
add("layernorm", function(arguments, node) arguments.bias, arguments.y_half = node.ins.bias ~= nil, nil end)

add("norm_dw", function(arguments, node, kernel, _, dtype)
    local parts = node.attrs.parts or 1
    arguments.parts, arguments.rows = parts, arguments.rows // parts
    arguments.few, arguments.store = columns.few(node, node.size.C, dtype), c_text.store(kernel, "y[at]", "value")
end)
list.norm_dw.helper = "elements:half"
launch(function(node, dtype) return columns.launch(node, node.attrs.parts or 1, node.size.C, dtype) end, "norm_dw")

batchnorms.set(list)

-- === planes ======================================================================================

of_planes(list)

-- Neighbouring channels that a thread has: an octet of planes that lie so (passes/octets.lua).
local function channels_of(node) return node.octets and 8 or 1 end

add("maxpool2d", function(arguments, node)
    arguments.wide, arguments.first, arguments.x, arguments.value = channels_of(node), nil, nil, nil
end)
add("avgpool2d", function(arguments, node)
    arguments.wide, arguments.x, arguments.value = channels_of(node), nil, nil
    arguments.out = c_text.type_of(node.outs.y.tensor)
end)

-- Each place sums the gradients of the windows that contain it.
for _, name in ipairs { "maxpool2d_dx", "avgpool2d_dx" } do
    add(name, function(arguments, node, kernel)
        arguments.wide, arguments.seen, arguments.adds = channels_of(node), pool.seen(node.attrs), kernel.can_add
        arguments.type, arguments.out = c_text.type_of(node.ins.dy), c_text.type_of(node.outs.y.tensor)
        arguments.store = c_text.store(kernel, "to.at[e]", "value")
        if name == "maxpool2d_dx" then arguments.type = nil end
    end)
end
for _, name in ipairs { "maxpool2d", "maxpool2d_dx", "avgpool2d", "avgpool2d_dx" } do
    list[name].helper = "elements:half"
end
launch(function(node)
    local s = node.size
    return launches.full(s.B * s.C * s.P * s.Q // channels_of(node))
end, "maxpool2d", "avgpool2d")
launch(function(node)
    local s = node.size
    return launches.full(s.B * s.C * s.P * s.Q)
end, "pad2d")
launch(function(node)
    local s = node.size
    return launches.full(s.B * s.C * s.H * s.W // channels_of(node))
end, "maxpool2d_dx", "avgpool2d_dx")

-- === rows ========================================================================================

local function by_columns(node, dtype)
    return columns.launch(node, node.size.outer, node.size.inner, dtype, node.size.n)
end

local function axis_sum(kernel, node, _, dtype)
    local arguments = shape.axis_sum(kernel, node, dtype, "row[j]")
    if shape.by_rows(node) then return arguments end
    arguments.type, arguments.term = nil, nil
    arguments.few, arguments.lanes = select(2, by_columns(node, dtype))
    arguments.row = node.ins.x.row or node.size.inner
    return arguments
end

local function sum_helper(node) return not shape.by_rows(node) and "elements:half" or nil end

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

-- Adds how a thread moves rows of classes; rows behind each other begin anywhere, unless a node sees only some, whose
-- first is another each time. Few classes have a lane of a warp each.
--   row.apart, row.few     elements from one row to the next; of one that are moved at once
local function add_classes(arguments, node, tensors, dtype)
    local row, C = tensors[1].row, node.size.C
    arguments.row = { apart = row or C,
        few = not row and C <= 32 and 1 or few.of_rows(tensors, row or node.run and C or 0, dtype) }
end

add("cross_entropy", function(arguments, node, _, _, dtype)
    local logits = node.ins.logits
    arguments.hit, arguments.type = element(logits, "row[target[i]]"), c_text.type_of(logits)
    add_classes(arguments, node, { logits }, dtype)
end)
add("cross_entropy_dx", function(arguments, node, kernel, _, dtype)
    add_classes(arguments, node, { node.ins.logits, node.outs.y.tensor }, dtype)
    arguments.adds, arguments.type = kernel.can_add or false, c_text.type_of(node.ins.logits)
    arguments.out, arguments.logit, arguments.store = c_text.type_of(node.outs.y.tensor), nil, nil
end)
add("hit", function(arguments, node, _, _, dtype) add_classes(arguments, node, { node.ins.logits }, dtype) end)
add("top_hit", function(arguments, node, _, _, dtype)
    local logits = node.ins.logits
    arguments.own, arguments.type = element(logits, "row[target[i]]"), c_text.type_of(logits)
    add_classes(arguments, node, { logits }, dtype)
end)
for _, name in ipairs { "cross_entropy", "cross_entropy_dx", "hit", "top_hit" } do
    list[name].helper = "elements:half wide"
end

of_embeddings(list)

-- How many of `width` losses, of what stands beside them and of their targets a thread moves at once.
local function few_losses(node, width, dtype)
    local tensors, ins, y = {}, node.ins, node.outs.y
    for _, t in pairs { loss = ins.loss or ins.hits, target = ins.target, y = y and y.tensor } do
        tensors[#tensors + 1] = t
    end
    return node.run and 1 or few.of_rows(tensors, width, dtype)
end

-- A thread has a row of losses at once, if all that count in it weigh 1 together; else neighbours.
--   chunk.losses, chunk.few, chunk.is_row    what a thread has, how many it moves at once; whether they are a row
--   chunk.of_loss                            the weight of one
add("tally", function(arguments, node, _, _, dtype)
    local by_rows = arguments.samples and arguments.each > 1
    local count = few_losses(node, by_rows and arguments.each or rows_of(node), dtype)
    arguments.counted = loss.counted(node)
    arguments.chunk = { losses = by_rows and arguments.each or count, few = count, is_row = by_rows,
        of_loss = text.block(not arguments.weighted and "1" or "class_weight[of_target.at[k]]"
            .. (arguments.samples and not by_rows and " > 0" or "")) }
    arguments.each = nil
end)
for _, name in ipairs { "tally_hits", "loss_seed" } do
    add(name, function(arguments, node, _, _, dtype)
        arguments.few = few_losses(node, rows_of(node), dtype)
    end)
end

local MANY_ROWS = 4096      -- for which a kernel of one block has more threads

launch(function(node) return per_row(rows_of(node), node.size.C) end, "cross_entropy", "cross_entropy_dx")
launch(function(node) return { blocks = rows_of(node), threads = 32 } end, "hit", "top_hit")
launch(function(node)
    local count = rows_of(node)
    return { blocks = 1, threads = count < MANY_ROWS and over(count).threads or 4 * THREADS }
end, "tally", "tally_hits", "tally_errors", "tally_spread", "micro_weight")
launch(function(node) return { blocks = 1, threads = over(node.ins.values.shape[1]).threads } end, "tally_values")
launch(function(node, dtype) return over(ceil(rows_of(node), few_losses(node, rows_of(node), dtype))) end, "loss_seed")
launch(function(node) return over(node.size.outer * node.size.inner) end, "axis_max")
launch(function(node) return over(graph.elements(node.size.S)) end, "axis_max_dx", "concat", "accumulate",
    "accumulate_half")
launch(function(node) return over(graph.elements(node.ins.x.shape)) end, "copy")

-- Neighbours of a row that a thread moves at once: all inside of the slice, or outside.
local function few_of_slice(node, dtype)
    local of, y = shape.slice_of(node), node.outs.y.tensor
    local count = few.of_rows({ node.ins.dy, y }, of.width, dtype)
    while of.first % count > 0 or of.count % count > 0 do count = count // 2 end
    return count
end
set("slice_dx", { arguments = function(kernel, node, _, dtype)
    return { slice = ordered.copy(shape.slice_of(node), { few = few_of_slice(node, dtype) }),
        type = c_text.type_of(node.ins.dy), out = c_text.type_of(node.outs.y.tensor),
        adds = kernel.can_add or false, store = c_text.store(kernel, "to.at[k]", "value") }
end, helper = "elements:half" })
launch(function(node, dtype) return over(graph.elements(node.size.S) // few_of_slice(node, dtype)) end, "slice_dx")

local function few_of_dropout(node, dtype)
    local x, y = node.ins.x, node.outs.y.tensor
    return few.of_rows({ x, y }, graph.elements(x.shape) // x.shape[1], dtype)
end
add("dropout", function(arguments, node, kernel, _, dtype)
    arguments.few, arguments.out = few_of_dropout(node, dtype), c_text.type_of(node.outs.y.tensor)
    arguments.adds, arguments.x = kernel.can_add or false, nil
    arguments.store = c_text.store(kernel, "to.at[k]", "value")
end)
list.dropout.helper = "elements:half rng draws"
launch(function(node, dtype)
    return over(graph.elements(node.ins.x.shape) // few_of_dropout(node, dtype))
end, "dropout")
list.accumulate_half.helper = function(node) return node.ins.micro and "rng narrow_between" end

return list
