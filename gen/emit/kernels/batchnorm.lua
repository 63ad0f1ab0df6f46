-- kernels_batchnorm: the template arguments of batchnorm, for both targets.
local c = require "emit.targets.c.c"
local expr = require "base.expr"
local graph = require "graph.graph"
local text = require "base.text"

local batchnorm = { arguments = {}, launch = {} }
local arguments, launch = batchnorm.arguments, batchnorm.launch

local THREADS, BLOCKS_MAX = 256, 65535

local function sizes(node)
    local s = node.size
    return { real = text.ident("real"), B = s.B, C = s.C, S = s.S, rows = node.attrs.rows }
end

-- An element in the words of a template.
local function element(t, spelling) return text.block(c.load(t, spelling)) end

function arguments.batchnorm_stats(_, node, _, dtype, target)
    local list, x = sizes(node), node.ins.x
    list.eps, list.sqrt = text.number(node.attrs.eps, dtype), target.call("sqrt", dtype)
    if target.folder == "c" then
        list.half, list.type = graph.is_half(x), c.type_of(x)
    else
        list.x = element(x, "x[first + k / S * C * S + k % S]")
    end
    return list
end

function arguments.batchnorm(_, node, _, _, target)
    local list, x = sizes(node), c.load(node.ins.x, "x[i]")
    list.value = text.block(c.stored(node.outs.y.tensor, target.folder == "c"
        and ("(%s - middle) * factor + shift"):format(x)
        or ("(%s - mean[at]) * (rstd[at] * weight[c]) + bias[c]"):format(x)))
    return list
end

-- Where one of dy and x is of 16 bits, so is the other.
function arguments.batchnorm_sums(_, node, _, _, target)
    local list = sizes(node)
    if target.folder == "c" then
        list.half = graph.is_half(node.ins.x)
    else
        list.x, list.dy = element(node.ins.x, "x[i]"), element(node.ins.dy, "dy[i]")
    end
    return list
end

function arguments.batchnorm_dx(kernel, node)
    local list = sizes(node)
    list.x, list.dy = element(node.ins.x, "x[i]"), element(node.ins.dy, "dy[i]")
    list.store = c.store(kernel, "y[i]", "value")
    return list
end

function arguments.batchnorm_running(_, node, _, dtype)
    local a = node.attrs
    return { real = text.ident("real"), C = node.size.C, groups = node.size.G,
        momentum = text.number(a.momentum, dtype), rest = text.number(1 - a.momentum, dtype),
        unbiased = text.number(a.n / (a.n - 1), dtype) }
end

function arguments.batchnorm_collect(_, node)
    return { real = text.ident("real"), C = node.size.C, groups = node.size.G, rows = node.attrs.batch }
end

local function over(n)
    return { blocks = math.min((n + THREADS - 1) // THREADS, BLOCKS_MAX), threads = THREADS }
end

function launch.batchnorm_stats(node) return { blocks = node.size.G * node.size.C, threads = THREADS } end
launch.batchnorm_sums = launch.batchnorm_stats

function launch.batchnorm(node) return over(node.size.B * node.size.C * node.size.S) end
launch.batchnorm_dx = launch.batchnorm

function launch.batchnorm_running(node) return over(node.size.C) end
launch.batchnorm_collect = launch.batchnorm_running

--- Whether a program moves running statistics by those of a whole cycle.
function batchnorm.moves(g)
    local found = false
    graph.walk(g.boundary, function(node) found = found or node.op == "batchnorm_move" end)
    return found
end

-- The statistics that move, and what the cycle has collected for each.
local MOVED = { "running_mean", "running_var", "batches", "cycle_running_mean", "cycle_running_var", "cycle_batches" }

--- The kernel that moves the running statistics of a layer.
function batchnorm.move_kernel(target)
    local kernel = { name = "batchnorm_move", items = MOVED, launch = { blocks = 1, threads = THREADS },
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
