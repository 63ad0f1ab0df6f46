-- collectives: marks the node of the backward pass after which the collective of each bucket starts. Only the last
-- micro-step of a cycle reduces over the ranks (passes/roles.lua).
--
--   ddp:  d_w written last by node n   ->   behind n: start the all-reduce of the bucket of w
--
-- A bucket is complete after the last writer of its gradients. A loop counts as one node: its gradients are complete
-- at its end.
local graph = require "graph.graph"

local collectives = { name = "collectives", doc = "which collective follows which node" }

function collectives.run(g, config)
    g.collectives = {}
    local reduces = config.mode.reduces
    if not reduces then return true end
    local last = {}
    for _, node in ipairs(g.backward) do
        graph.walk({ node }, function(inner)
            for _, out in ipairs(graph.writes(inner)) do
                if out.tensor.kind == reduces.of then last[out.tensor.param] = node end
            end
        end)
    end
    local position = {}
    for i, node in ipairs(g.backward) do position[node] = i end
    for i, bucket in ipairs(g.buckets) do
        local after
        for _, param in ipairs(bucket.params) do
            local node = last[param]
            if not after or position[node] > position[after] then after = node end
        end
        after.completes = after.completes or {}
        table.insert(after.completes, i)
        g.collectives[#g.collectives + 1] = { kind = reduces.collective, bucket = i, n = bucket.n,
            offset = bucket.offset }
        graph.decide(g, ("bucket %d"):format(i), ("%d elements, %d parameters"):format(bucket.n, #bucket.params),
            ("neighbours share one of up to %d elements; its %s starts where its last gradient is complete"):format(
                config.bucket_elements, reduces.collective))
    end
    return true
end

return collectives
