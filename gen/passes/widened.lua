-- widened: a value of 16 bits that each tile of a product would widen is widened once, before the product.
--
--   y = linear(x, w)   ->   x_wide f32 = x ; y = linear(x_wide, w)        with x, w bf16
--
-- Where a processor multiplies no 16 bits, each tile of a product widens its rows of the left operand. The target says
-- of a product whether a copy for all tiles costs less (config.widens_once). Products of one value share the copy.
local graph = require "graph.graph"
local ordered = require "base.ordered"

local widened = { name = "widened", optional = true,
    doc = "values of 16 bits widened once for all tiles of a product" }

-- The left operand of a product, by its name; nil for other nodes.
local function left_operand(node, op)
    if not (op and op.gemm) or node.run then return nil end
    local name = node.signature.ins[1]
    local t = node.ins[name]
    return graph.is_half(t) and not t.row and name or nil
end

local function rewrite(g, config, body)
    local list, copies = table.move(body, 1, #body, 1, {}), {}
    for i = 1, #body do body[i] = nil end
    for _, node in ipairs(list) do
        if node.op == "times" then rewrite(g, config, node.body) end
        local op = config.ops[node.op]
        local name = left_operand(node, op)
        if name and config.widens_once(op.gemm(node)) then
            local t, b = node.ins[name], config.builder
            b.at, b.path, b.body, b.scope = node.at, {}, body, node.scope
            if not copies[t] then
                copies[t] = b:cast(t, g.real, t.name .. "_wide")
                copies[t].def.why = "widened once for all tiles of the product"
            end
            node.ins = ordered.copy(node.ins, { [name] = copies[t] })
            graph.decide(g, t.name, "widened once", ("many tiles of %s read it"):format(graph.result(node).name))
        end
        body[#body + 1] = node
    end
end

function widened.run(g, config)
    if not (g.half and config.widens_once) then return true end
    for _, body in ipairs { g.forward, g.evaluation, g.backward } do rewrite(g, config, body) end
end

return widened
