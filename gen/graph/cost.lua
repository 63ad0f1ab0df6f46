-- cost: the arithmetic and the traffic of a node.
local graph = require "graph.graph"
local statements = require "base.statements"

--- { flops, elements } of one run of `node`: operations, and elements that it reads and writes. ops: the catalog's map.
return function(node, ops)
    if node.statements then
        local n = graph.elements(graph.result(node).shape)
        return { flops = n * statements.count(node.statements), elements = n * (1 + #node.signature.ins) }
    end
    return ops[node.op].cost(node)
end
