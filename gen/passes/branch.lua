-- branch: gradients of parameters beside the rest of the backward pass, on a device. Nothing in the pass reads them, so
-- their kernels go to a second stream, a branch of the graph of a cycle. Kernels of a small program are too short to
-- fill a device, and the next ones need not wait for them.
--
--   d_x = linear_dx(d_y, w)
--   branch 1; d_w = linear_dw(d_y, x)     beside all that follows
--   d_z = ...
--   join 1; d_y = ...                     takes memory that linear_dw reads (passes/joins.lua)
--
-- The backward pass ends when its branches have ended, too. Pass memory keeps what nodes of a branch read up to the end
-- of their body, so that joins come late.
local cost = require "graph.cost"
local graph = require "graph.graph"

local branch = { name = "branch", optional = true,
    doc = "gradients of parameters beside the backward pass, in small programs" }

-- Operations of a micro-step from which on kernels fill a device by themselves.
local MANY = 1e11

local function operations(body, ops)
    local count = 0
    for _, node in ipairs(body) do
        if node.op == "times" then
            count = count + node.count * operations(node.body, ops)
        elseif node.statements or ops[node.op] then             -- else it copies carried values
            count = count + cost(node, ops).flops
        end
    end
    return count
end

-- Whether a node writes gradients of parameters alone.
local function is_last(node)
    if node.op == "times" then return false end
    for _, out in ipairs(graph.writes(node)) do
        if out.tensor.kind ~= "gradient" then return false end
    end
    return true
end

-- Numbers the branches of a body up to its node number `last`: neighbours are one.
local function mark(g, body, last)
    local before
    for i = 1, last do
        local node = body[i]
        if node.op == "times" then mark(g, node.body, #node.body) end
        if is_last(node) then
            if not (before and before.branch) then g.branches = (g.branches or 0) + 1 end
            node.branch = g.branches
        end
        before = node
    end
end

function branch.run(g, config)
    local ops, last = config.ops, #g.backward
    if not config.branches or g.ranks or operations(g.forward, ops) + operations(g.backward, ops) >= MANY then
        return true
    end
    -- nothing is behind the nodes that the pass ends with
    while last > 0 and is_last(g.backward[last]) do last = last - 1 end
    mark(g, g.backward, last)
    return true
end

return branch
