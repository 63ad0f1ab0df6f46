-- carries: gives the initial value of every loop carry memory of its own.
--
--   h = times(x)   with x an input, or read again later   ->   x' = copy(x); h = times(x')
--
-- The value before the loop (init) and the results of the iterations share the slots of one block of memory
-- (passes/memory.lua). So init must be a value of the scope around the loop, and of no other carry. If iterations
-- overwrite slots, the loop must also be the only reader of init. Otherwise the loop starts from a copy of init.
local graph = require "graph.graph"

local carries = { name = "carries", doc = "copies where a carried value has no place of its own" }

-- Maps each tensor to the nodes that read it.
local function readers_of(g)
    local readers = {}
    for _, body in ipairs { g.forward, g.evaluation, g.backward } do
        graph.walk(body, function(node)
            for _, t in ipairs(graph.reads(node)) do
                readers[t] = readers[t] or {}
                table.insert(readers[t], node)
            end
        end)
    end
    return readers
end

-- Whether the arguments or results of a carry are read outside their own region.
local function is_kept(carry, readers)
    for _, t in ipairs { carry.arg, carry.result } do
        for _, node in ipairs(readers[t] or {}) do
            if not graph.inside(node.scope, carry.region) then return true end
        end
    end
    return false
end

-- Inserts a copy of init before the loop at `index`, as the new init of the carry.
local function insert_copy(g, builder, body, index, carry)
    builder.at, builder.path = carry.region.at, {}
    builder.body, builder.scope = {}, carry.region.scope
    local copied = builder:value("copy", { x = carry.init }, nil, carry.init.name .. "_start")
    copied.dtype = carry.init.dtype
    table.insert(body, index, builder.body[1])
    carry.init = copied
end

function carries.run(g, config)
    local taken, readers = {}, nil
    for _, body in ipairs { g.forward, g.backward } do
        local i = 1
        while i <= #body do
            local node = body[i]
            for _, carry in ipairs(node.carries or {}) do
                readers = readers or readers_of(g)
                carry.kept = is_kept(carry, readers)
                local init = carry.init
                local own = init.kind == "value" and init.def and init.def.op ~= "times"
                    and init.scope == node.scope and not taken[init]
                    and (carry.kept or #(readers[init] or {}) <= 1)
                if not own then
                    insert_copy(g, config.builder, body, i, carry)
                    i = i + 1
                end
                taken[carry.init] = true
                carry.slots = carry.kept and node.count + 1 or 2
            end
            i = i + 1
        end
    end
    return readers == nil
end

return carries
