-- cost: the arithmetic and the traffic of a node.
local graph = require "graph.graph"
local statements = require "base.statements"

--- { flops, elements } of one run of `node`: operations, and elements that it reads and writes. ops: the catalog's map.
return function(node, ops)
    if node.statements then
        local n = graph.elements(graph.written(graph.writes(node)[1]))
        return { flops = n * statements.count(node.statements), elements = n * (1 + #node.signature.ins) }
    end
    local cost, behind, drops = ops[node.op].cost(node), node.behind, node.drops
    if not (behind or drops) then return cost end
    local n = graph.elements(graph.result(node).shape)
    local more = behind and behind.both and 1 or 0
    for _, name in ipairs(node.signature.ins) do more = more + (name:find "^with_%d+$" and 1 or 0) end
    local each = (drops and 2 or 0) + (behind and statements.count(behind.statements) or 0)
    return { flops = cost.flops + n * each, elements = cost.elements + n * more }
end
