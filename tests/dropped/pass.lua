-- count_nodes: a pass of its own, for a test: it says itself where it runs.
return { name = "count_nodes", doc = "how many nodes there are", after = "fusion", optional = true,
    fields = { graph = { node_count = "how many nodes there are (count_nodes)" } },
    run = function(g)
        g.node_count = #g.forward + #g.backward
    end }
