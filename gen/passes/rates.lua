-- rates: how often a node runs: "micro" (every pass), "update" (once per update, after the
-- optimizer, and after a load). What is constant over a cycle is not computed A times.
--
--   views: fc1.weight.in_out = pack(fc1.weight)   rate update
local graph = require "graph.graph"

local rates = { name = "rates", doc = "how often each node runs" }

local function set(body, rate)
    graph.walk(body, function(node) node.rate = rate end)
end

function rates.run(g)
    set(g.forward, "micro")
    set(g.backward, "micro")
    set(g.evaluation, "micro")
    set(g.views, "update")
end

return rates
