-- sync: barriers. Workers share the tiles of a kernel and run ahead into the next kernel. A kernel waits if it
-- reads memory written, or writes memory read or written, by a kernel since the last barrier.
--
--   y = linear(x, w) ; barrier ; r = relu(y)
--
-- A loop body is walked twice: the second
-- walk finds conflicts with the iteration before. After a node with `fence` all workers wait anyway. A loop over parts
-- may have no iteration, so a barrier inside of it counts for nothing outside: what it needs stands before the loop.
local conflicts = require "passes.conflicts"
local graph = require "graph.graph"
local joins = require "passes.joins"

local sync = { name = "sync", doc = "barriers between kernels that share memory" }

local function note_barrier(g, node, name, wait)
    if wait and not node.barrier then graph.decide(g, name, "barrier", wait) end
    node.barrier = node.barrier or wait and true or nil
end

-- Decides whether a node needs a barrier.
local function visit(g, node, since)
    local reads, writes, wait = conflicts.touched(node, since)
    local first = graph.writes(node)[1]
    note_barrier(g, node, first and first.tensor.name or node.op, wait)
    if node.barrier or node.fence then since.read, since.written = {}, {} end
    if not node.fence then conflicts.add(since, reads, writes) end
end

local walk

-- A loop over parts: whether all workers wait before it, and the barriers between its own nodes.
local function visit_parts(g, loop, since)
    local all, why = {}, nil
    graph.walk(loop.body, function(node)
        local reads, writes, wait = conflicts.touched(node, since)
        all[#all + 1], why = { reads, writes }, why or wait
    end)
    note_barrier(g, loop, ("parts of %s"):format(loop.name), why)
    if loop.barrier then since.read, since.written = {}, {} end
    local inside = { read = {}, written = {}, loop = loop }
    for n = 1, 2 do
        inside.walk = n
        walk(g, loop.body, inside)
    end
    for _, places in ipairs(all) do conflicts.add(since, places[1], places[2]) end
end

walk = function(g, body, since)
    for _, node in ipairs(body) do
        if node.op == "times" and node.part then
            visit_parts(g, node, since)
        elseif node.op == "times" then
            for n = 1, 2 do
                since.loop, since.walk = node, n
                walk(g, node.body, since)
            end
            since.loop = nil
        else
            visit(g, node, since)
        end
    end
end

-- Sets the barriers of a body that is a function of its own: all workers wait before and after it.
local function sync_body(g, body) walk(g, body, { read = {}, written = {} }) end

function sync.run(g)
    for _, body in ipairs { g.forward, g.evaluation, g.backward, g.boundary, g.views } do sync_body(g, body) end
    for _, f in ipairs(g.iterations) do sync_body(g, { f.region }) end
    if g.branches then joins(g) end
    return true
end

return sync
