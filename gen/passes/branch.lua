-- branch: gradients of parameters beside the rest of the backward pass, on a device. Nothing in the pass reads them, so
-- their kernels go to a second stream, a branch of the graph of a cycle. Kernels of a small program are too short to
-- fill a device, and the next ones need not wait for them. So do the sums of the losses, and what depends on the batch
-- alone, which comes first.
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

-- Whether a kernel has so many operations that it fills a device by itself.
local function is_large(body, config)
    for _, node in ipairs(body) do
        if node.op == "times" then
            if is_large(node.body, config) then return true end
        elseif (node.statements or config.ops[node.op])         -- else it copies carried values
            and cost(node, config.ops).flops >= config.branches then
            return true
        end
    end
    return false
end

-- Whether a node writes gradients of parameters, or the sums of a cycle, alone.
local function is_last(g, node)
    if node.op == "times" then return false end
    for _, out in ipairs(graph.writes(node)) do
        if out.tensor.kind ~= "gradient" and out.tensor ~= g.sums then return false end
    end
    return true
end

-- Whether a node reads the batch alone.
local function is_first(node)
    if node.op == "times" then return false end
    for _, t in ipairs(graph.reads(node)) do
        if t.kind ~= "input" then return false end
    end
    return true
end

-- Moves nodes of the backward pass that need nothing of the forward pass, such as the order of ids, to its beginning;
-- returns them as a set.
local function move_first(g)
    local body, early, place = g.backward, {}, 1
    for i = 2, #body do
        local node = body[i]
        if is_first(node) and not is_last(g, node) then
            table.insert(body, place, table.remove(body, i))
            early[node], place = true, place + 1
        end
    end
    return early, place > 1
end

-- Numbers the branches of a body up to its node number `last`: neighbours are one. early: nodes that are in one, too.
local function mark(g, body, last, early)
    local before
    for i = 1, last do
        local node = body[i]
        if node.op == "times" then mark(g, node.body, #node.body, early) end
        if is_last(g, node) or early[node] then
            if not (before and before.branch) then g.branches = (g.branches or 0) + 1 end
            node.branch = g.branches
        end
        before = node
    end
end

function branch.run(g, config)
    local last = #g.backward
    if not config.branches or g.ranks or is_large(g.forward, config) or is_large(g.backward, config) then
        return true
    end
    local early, moved = move_first(g)
    mark(g, g.forward, #g.forward, early)
    g.forks = g.branches ~= nil
    -- nothing is behind the last node
    mark(g, g.backward, last > 0 and is_last(g, g.backward[last]) and last - 1 or last, early)
    return not moved
end

return branch
