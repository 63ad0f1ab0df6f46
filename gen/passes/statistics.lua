-- statistics: with sync_batchnorm batchnorm normalises over the rows of all ranks.
--
--   mean, var, rstd = batchnorm_stats(x)   ->   mean_own, var_own = batchnorm_stats(x)
--                                               mean, var, rstd, count = batchnorm_join(mean_own, var_own)    fence
--
-- The new node is a collective of each micro-step for training: all ranks have the same bodies, so they call it in the
-- same order. Its results are kept for the backward pass, never computed again (computed_once). Readers stay as they
-- are, but for the count of values: the gradient of batchnorm and running statistics need it.
local graph = require "graph.graph"

local statistics = { name = "statistics", doc = "batchnorm over the rows of all ranks" }

local RESULTS = { "mean", "var", "rstd" }

-- The node that joins the statistics of all ranks; it writes the tensors that `node` wrote.
local function join_of(b, node)
    local old, names = {}, { count = node.attrs.name .. ".count" }
    for _, name in ipairs(RESULTS) do
        old[name] = node.outs[name].tensor
        names[name] = old[name].name .. "_own"
    end
    b.body, b.scope, b.path, b.at = {}, node.scope, {}, node.at
    local join = b:node("batchnorm_join", { own_mean = old.mean, own_var = old.var, micro = node.ins.micro },
        { n = node.attrs.rows * node.size.S, eps = node.attrs.eps }, names)
    join.path, join.fence = node.path, true
    for _, name in ipairs(RESULTS) do
        local own = join.outs[name].tensor
        node.outs[name].tensor, join.outs[name].tensor = own, old[name]
        own.def, old[name].def = node, join
    end
    join.ins.own_mean, join.ins.own_var = node.outs.mean.tensor, node.outs.var.tensor
    return join
end

local function join_all(b, body)
    local nodes = table.move(body, 1, #body, 1, {})
    for i = #body, 1, -1 do body[i] = nil end
    for _, node in ipairs(nodes) do
        body[#body + 1] = node
        if node.op == "times" then join_all(b, node.body) end
        if node.op == "batchnorm_stats" then body[#body + 1] = join_of(b, node) end
    end
end

function statistics.run(g, config)
    if not config.sync_batchnorm then return true end
    join_all(config.builder, g.forward)
    graph.walk(g.forward, function(node)
        if node.op == "batchnorm_running" then node.ins.count = node.ins.mean.def.outs.count.tensor end
    end)
end

return statistics
