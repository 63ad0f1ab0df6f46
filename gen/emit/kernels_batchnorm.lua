-- kernels_batchnorm: the template arguments of batchnorm, for both targets.
local c = require "emit.c"
local text = require "base.text"

local batchnorm = { arguments = {}, launch = {} }
local arguments, launch = batchnorm.arguments, batchnorm.launch

local THREADS, BLOCKS_MAX = 256, 65535

local function sizes(node)
    local s = node.size
    return { real = text.ident("real"), B = s.B, C = s.C, S = s.S, rows = node.attrs.rows }
end

function arguments.batchnorm_stats(_, node, _, dtype, target)
    local list = sizes(node)
    list.eps, list.sqrt = text.number(node.attrs.eps, dtype), target.call("sqrt", dtype)
    return list
end

function arguments.batchnorm(_, node) return sizes(node) end
arguments.batchnorm_sums = arguments.batchnorm

function arguments.batchnorm_dx(kernel, node)
    local list = sizes(node)
    list.store = c.store(kernel, "y[i]", "value")
    return list
end

function arguments.batchnorm_running(_, node, _, dtype)
    local a = node.attrs
    return { real = text.ident("real"), C = node.size.C, groups = node.size.G,
        momentum = text.number(a.momentum, dtype), rest = text.number(1 - a.momentum, dtype),
        unbiased = text.number(a.n / (a.n - 1), dtype) }
end

local function over(n)
    return { blocks = math.min((n + THREADS - 1) // THREADS, BLOCKS_MAX), threads = THREADS }
end

function launch.batchnorm_stats(node) return { blocks = node.size.G * node.size.C, threads = THREADS } end
launch.batchnorm_sums = launch.batchnorm_stats

function launch.batchnorm(node) return over(node.size.B * node.size.C * node.size.S) end
launch.batchnorm_dx = launch.batchnorm

function launch.batchnorm_running(node) return over(node.size.C) end

return batchnorm
