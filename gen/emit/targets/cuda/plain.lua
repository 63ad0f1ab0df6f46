-- plain: products and gradients of norms to whose results of 16 bits nothing but another value is added, if at all
-- (passes/fusion.lua), and to products a bias. Those of one kind are one kernel: where only some of a program's nodes
-- add a bias or a value, `bias` or `with_1` is null for the others.
--
--   y = linear(x, w, bias)        ->   product_nt(y, x, w, bias, with_1 = null)
--   z = x + linear(y, w, bias)         product_nt(z, y, w, bias, with_1 = x)
local few = require "emit.targets.cuda.few"
local graph = require "graph.graph"

local plain = {}

-- Parameters by input; %s: the type of the result.
local PARAMETERS = { bias = "const real *bias", with_1 = "const %s *with_1" }

-- Whether all that stands behind an op is another value as long as its result that is added to it.
local function adds_alone(node)
    local list, t = node.behind.statements, node.ins.with_1
    if #list > 1 or list[1][2].op ~= "+" or node.behind.both or node.views.with_1 then return false end
    local first, second = list[1][2][1], list[1][2][2]
    if first.op == "rounded" then first, second = second, first end
    return first.name == "x_1" and second.op == "rounded" and second[1].name == "value"
        and t.dtype == graph.result(node).dtype and few.is_aligned(t)
end

-- The kind of a node, by which names of kernels begin; nil: it is not plain. op: its entry of the catalog.
local function kind_of(node, op)
    if node.op ~= "norm_dx" and (not op.gemm or node.op:find "_dw$") then return nil end
    if not graph.is_half(graph.result(node)) or node.drops or graph.writes(node)[1].acc then return nil end
    if node.behind and not adds_alone(node) then return nil end
    return plain.name(node, op)
end

--- The name of a product that those of other ops share, "product_nt": t: an operand that is transposed; of another node
--- that of its op.
function plain.name(node, op)
    if not op.gemm then return node.op end
    local g = op.gemm(node)
    return ("product_%s%s"):format(g.a_col ~= 1 and "t" or "n", g.b_row ~= 1 and "n" or "t")
end

--- By kind, how many nodes of a graph add a bias, and a value: { all, bias, with_1 }.
function plain.added(g, ops)
    local kinds = {}
    for _, body in ipairs { g.forward, g.backward, g.evaluation } do
        graph.walk(body, function(node)
            local kind = ops[node.op] and kind_of(node, ops[node.op])
            if not kind then return end
            local of = kinds[kind] or { all = 0, bias = 0, with_1 = 0 }
            kinds[kind], of.all = of, of.all + 1
            for name in next, PARAMETERS do of[name] = of[name] + (node.ins[name] and 1 or 0) end
        end)
    end
    return kinds
end

--- How the kernel of a node is shared by the nodes of its kind; nil if it is not plain.
---   bias, with_1            whether it adds one: "always", "where" it is not null, or false
---   missing                 parameters that the node does without (targets/ops.lua)
function plain.of(kernel, op)
    local node = kernel.node
    local kind = kind_of(node, op)
    local of = kind and (kernel.added and kernel.added[kind] or { all = 0, bias = 0, with_1 = 0 })
    if not of then return nil end
    local form = { missing = {} }
    for name, parameter in next, PARAMETERS do
        local own = node.ins[name] ~= nil
        local shared = of[name] > 0 and of[name] < of.all
        form[name] = shared and "where" or own and "always"
        if shared and not own then form.missing[name] = parameter:format(graph.result(node).dtype) end
    end
    return form
end

return plain
