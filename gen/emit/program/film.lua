-- film: how the memory of the activations is used over the steps of a micro-step: which values live when, and where.
local ordered = require "base.ordered"

local film = {}

-- Bodies of the graph on the timeline of passes/memory.lua, in its order.
local SECTIONS = { "forward", "evaluation", "backward", "boundary" }

local function name_of(node)
    return node.kernel and node.kernel.name or node.op == "times" and "times " .. node.name or node.op
end

--- The film of a graph: { steps = of each step from 1 on { name, section }, blocks = { name, offset, bytes, from, to },
--- of values and of the working memory of regions; they lie there from one step up to another }. size: bytes of an
--- element of the program's type.
function film.of(g, size)
    local steps = {}
    for _, section in ipairs(SECTIONS) do
        for _, node in ipairs(g[section]) do steps[#steps + 1] = { name = name_of(node), section = section } end
    end
    local blocks = ordered.collect(g.timeline, function(block)
        return block.size > 0 and { name = block.name, offset = block.offset * size, bytes = block.size * size,
            from = block.from, to = block.to } or nil
    end)
    return { steps = steps, blocks = setmetatable(blocks, { array = true }) }
end

return film
