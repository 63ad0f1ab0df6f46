-- joins: which nodes wait for which branches (passes/branch.lua): those that touch memory which a
-- node of a branch writes, or write memory that it reads. Branches follow each other on one stream, so a node that
-- waits for one has waited for all before it. A loop body is walked twice, as in pass sync, but
-- once where it has one iteration: a join with a branch of the iteration before would then wait for nothing.
local conflicts = require "passes.conflicts"
local graph = require "graph.graph"
local ordered = require "base.ordered"

-- Notes that a node waits for a branch.
local function note(node, number)
    node.joins = node.joins or {}
    if not ordered.find(node.joins, number) then table.insert(node.joins, number) end
end

-- open: the branches under way, in their order: { number, read, written }.
local function visit(node, open, loop, walk)
    local function seen_from(branch)
        branch.loop, branch.walk = loop, walk
        return conflicts.touched(node, branch)
    end
    if node.branch then
        local last = open[#open]
        if not last or last.number ~= node.branch or last.began ~= walk then
            last = { number = node.branch, read = {}, written = {}, began = walk }
            open[#open + 1] = last
        end
        local reads, writes = seen_from(last)
        return conflicts.add(last, reads, writes)
    end
    for k = #open, 1, -1 do
        if select(3, seen_from(open[k])) then
            note(node, open[k].number)
            table.move(open, k + 1, #open + k, 1)       -- those before it have ended, too
            return
        end
    end
end

local function along(body, open, loop, walk)
    for _, node in ipairs(body) do
        if node.op == "times" then
            for n = 1, math.min(2, node.count) do along(node.body, open, node, n) end
        else
            visit(node, open, loop, walk)
        end
    end
end

--- Sets `joins` and `joined` of nodes. Behind the forward pass comes the evaluation or the backward pass.
return function(g)
    local joined, open = {}, {}
    along(g.forward, open)
    along(g.evaluation, table.move(open, 1, #open, 1, {}))
    along(g.backward, open)
    for _, body in ipairs { g.forward, g.evaluation, g.backward } do
        graph.walk(body, function(node)
            for _, number in ipairs(node.joins or {}) do joined[number], g.joins = true, true end
        end)
    end
    for _, body in ipairs { g.forward, g.backward } do
        graph.walk(body, function(node) node.joined = joined[node.branch or 0] end)
    end
end
