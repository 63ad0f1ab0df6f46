-- batchnorm: the template arguments of batchnorm, as far as all targets have them.
local c_text = require "emit.targets.c_text"
local expr = require "base.expr"
local graph = require "graph.graph"
local text = require "base.text"

local batchnorm = { arguments = {} }
local arguments = batchnorm.arguments

local function sizes(node)
    local s = node.size
    return { B = s.B, C = s.C, S = s.S, rows = node.attrs.rows }
end

-- The text that reads an element of t, given its address expression.
local function element(t, spelling) return text.block(c_text.load(t, spelling)) end

function arguments.batchnorm_stats(_, node, _, dtype, target)
    local list = sizes(node)
    list.eps, list.sqrt = text.number(node.attrs.eps, dtype), target.call("sqrt", dtype)
    return list
end

function arguments.batchnorm(_, node) return sizes(node) end
function arguments.batchnorm_sums(_, node) return sizes(node) end

function arguments.batchnorm_dx(kernel, node)
    local list = sizes(node)
    list.x, list.dy = element(node.ins.x, "x[i]"), element(node.ins.dy, "dy[i]")
    list.store = c_text.store(kernel, "y[i]", "value")
    list.n = text.block(node.ins.count and "count[0]" or "(real)ROWS * S")
    return list
end

function arguments.batchnorm_running(_, node, _, dtype)
    local a, joined = node.attrs, node.ins.count ~= nil
    return { C = node.size.C, groups = node.size.G, joined = joined,
        momentum = text.number(a.momentum, dtype), rest = text.number(1 - a.momentum, dtype),
        unbiased = joined and text.block "unbiased" or text.number(a.n / (a.n - 1), dtype) }
end

function arguments.batchnorm_join(_, node, _, dtype, target)
    return { C = node.size.C, n = node.attrs.n, eps = text.number(node.attrs.eps, dtype),
        sqrt = target.call("sqrt", dtype) }
end

function arguments.batchnorm_join_sums(_, node) return { C = node.size.C } end

function arguments.batchnorm_collect(_, node)
    return { C = node.size.C, groups = node.size.G }
end

arguments.batchnorm_add = arguments.batchnorm_collect

--- Whether the boundary updates running statistics by those of a whole cycle.
function batchnorm.moves(g)
    local found = false
    graph.walk(g.boundary, function(node) found = found or node.op == "batchnorm_move" end)
    return found
end

-- The running statistics, and the statistics of the cycle that update them.
local MOVED = { "running_mean", "running_var", "batches", "cycle_running_mean", "cycle_running_var", "cycle_batches" }

--- The kernel that updates the running statistics of a layer.
function batchnorm.move_kernel(target)
    local kernel = { name = "batchnorm_move", items = MOVED,
        parameters = { "const step *s", "real *mean", "real *variance", "real *batches", "const real *cycle_mean",
            "const real *cycle_variance", "const real *cycle_batches", "int channels", "ga_int64 values",
            "double momentum" } }
    kernel.first = target.move_step
    return kernel
end

--- The call of that kernel.
function batchnorm.move_call(kernel, pad, target, behind)
    local node, list = kernel.node, { kernel.first }
    for i, name in ipairs(MOVED) do
        local out = node.outs[name]
        list[i + 1] = target.pointer(out and out.tensor or node.ins[name])
    end
    local a = node.attrs
    table.move({ tostring(a.channels), tostring(a.values), expr.literal(a.momentum, "f64") }, 1, 3, #list + 1, list)
    return target.wrap(pad, kernel.name .. "(", list, ");" .. behind)
end

return batchnorm
