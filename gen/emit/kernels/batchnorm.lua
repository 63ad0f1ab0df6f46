-- kernels_batchnorm: the template arguments of batchnorm, as far as all targets have them.
local c_text = require "emit.targets.c_text"
local expr = require "base.expr"
local graph = require "graph.graph"
local text = require "base.text"

local batchnorm = { arguments = {} }
local arguments = batchnorm.arguments

local function sizes(node)
    local s = node.size
    return { real = text.ident("real"), B = s.B, C = s.C, S = s.S, rows = node.attrs.rows }
end

-- An element in the words of a template.
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

--- The statements that move the running statistics of which a cycle collects groups, where an update is done.
function batchnorm.moves(g, target)
    local list = {}
    graph.walk(g.forward, function(node)
        if node.op ~= "batchnorm_collect" then return end
        local mean, a = node.outs.running_mean.tensor.param, node.attrs
        local function at(name)
            local flat = node.outs[name].tensor.param.flat
            return mean.count > 1 and ("%d + l * %d"):format(flat.offset, flat.stride) or tostring(flat.offset)
        end
        if mean.count > 1 then list[#list + 1] = ("for (int64_t l = 0; l < %d; l++)"):format(mean.count) end
        list[#list + 1] = target.wrap(mean.count > 1 and "    " or "", "batchnorm_move(",
            { target.move_step .. target.flat:format("w") .. target.flat:format("g"), at "running_mean",
            at "running_var", at "batches", tostring(node.size.C), tostring(a.n), expr.literal(a.momentum, "f64") },
            ");")
    end)
    return list
end

--- The parameters of batchnorm_move on a device.
batchnorm.MOVE_PARAMETERS = { "const step *s", "real *flat_w", "const real *flat_g", "ga_int64 mean",
    "ga_int64 variance", "ga_int64 batches", "int channels", "ga_int64 values", "double momentum" }

return batchnorm
