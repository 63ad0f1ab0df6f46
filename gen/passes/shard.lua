-- shard: which collective runs when, as the mode of `parallel` says (catalog/parallel). Only roles that reduce print
-- it.
--
--   d_w written last by node n   ->   after n: start the all-reduce of w's bucket
--
-- A bucket is complete when the last of its gradients is; a node inside a region counts as the
-- region, so its bucket starts when the loop has ended.
local graph = require "graph.graph"

local shard = { name = "shard", doc = "which collective follows which node" }

function shard.run(g, config)
    g.collectives = {}
    local reduces = config.mode.reduces
    if not reduces then return end
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
    end
end

return shard
