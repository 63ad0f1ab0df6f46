-- batchnorm: checks batchnorm layers, which compute statistics over rows, against the other words of a spec.
local diag = require "base.diag"
local graph = require "graph.graph"
local text = require "base.text"

local batchnorm = {}

--- The nodes that compute batchnorm statistics, in forward order.
function batchnorm.nodes(g)
    local list = {}
    graph.walk(g.forward, function(node)
        if node.op == "batchnorm_stats" then list[#list + 1] = node end
    end)
    return list
end

-- "'bn1', 'layer1.0.bn1' and 18 more".
local function names_of(nodes)
    local list = {}
    for i = 1, math.min(#nodes, 2) do list[i] = ("'%s'"):format(nodes[i].attrs.name) end
    local more = #nodes - #list
    return table.concat(list, ", ") .. (more > 0 and (" and %d more"):format(more) or "")
end

--- The names, and the first node, of the layers without `rows`: their groups are micro-batches, so results depend
--- on how a cycle is divided. nil if there is no such layer.
function batchnorm.open(g)
    local open = {}
    for _, node in ipairs(batchnorm.nodes(g)) do
        if not node.attrs.given_rows then open[#open + 1] = node end
    end
    return #open > 0 and names_of(open) or nil, open[1]
end

-- Refuses sync_batchnorm where it has no layers, or groups that lie inside of a rank.
local function check_sync(nodes, c)
    local at = diag.field(c.parallel_at, "sync_batchnorm")
    if #nodes == 0 then
        diag.fail(at, "parallel: sync_batchnorm, but the model has no batchnorm, expected one or no sync_batchnorm", {})
    end
    for _, node in ipairs(nodes) do
        local rows = node.attrs.given_rows
        if rows then
            diag.fail(node.at, ("batchnorm '%s': rows = %d makes groups inside of a rank, and parallel.sync_batchnorm "
                .. "one group of the rows of all ranks, expected one of both"):format(node.attrs.name, rows), {})
        end
    end
end

--- Refuses padded micro-batches and open batch.rows where statistics would be wrong; warns if accumulation or ranks
--- leave the groups as small as a micro-batch.
function batchnorm.check(g, c)
    local nodes = batchnorm.nodes(g)
    if c.sync_batchnorm then check_sync(nodes, c) end
    if #nodes == 0 then return end
    local open, first = batchnorm.open(g)
    local ranks = c.sync_batchnorm and c.ranks or 1      -- whose rows are in a group
    if c.data.last == "pad" then
        diag.fail(nodes[1].at, ("batchnorm %s: data.last = \"pad\" fills a micro-batch with rows that are not there, "
            .. "expected \"drop\""):format(names_of(nodes)), {})
    elseif c.rows_open and open then
        diag.fail(first.at, ("batchnorm %s: batch.rows is \"auto\", but the statistics are those of a micro-batch: "
            .. "expected batchnorm { rows = N }"):format(open), {})
    elseif c.largest * c.ranks > ranks and open then
        diag.warn(first.at, ("batchnorm %s: statistics are those of each %s of %s rows, not of the %s "
            .. "rows of an update, as torch's are%s"):format(open, c.sync_batchnorm and "micro-step" or "micro-batch",
            text.commas(c.batch * ranks), text.commas(c.batch * c.largest * c.ranks),
            c.sync_batchnorm and "" or "; batchnorm { rows = N } says so and silences this"))
    end
end

return batchnorm
