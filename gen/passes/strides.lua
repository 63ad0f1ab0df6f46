-- strides: the distance in memory from one row to the next, of values that products read or write 16 bytes at a time.
--
--   d_logits bf16 (32768, 50257)    ->    rows 50304 elements apart: each begins at a multiple of 128 bytes
--
-- The elements behind a row belong to nobody: a kernel may write them with the last ones of the row, and counts on
-- nothing there. A target says which operands of a node may lie so (config.strides). A value lies so if all nodes that
-- read or write it take it like that, and one of them is a product.
local graph = require "graph.graph"
local ordered = require "base.ordered"

local strides = { name = "strides", optional = true,
    doc = "rows of values that begin where 16 bytes can be moved at once" }

local BODIES = { "forward", "backward", "evaluation" }

-- Elements of 16 bytes of the narrowest type; of 128 bytes, a line of the cache; rows from LONG on begin with a line,
-- which makes them at most 6 % longer.
local CHUNK, LINE, LONG = 8, 64, 1024

local function padded(width)
    local unit = width >= LONG and LINE or CHUNK
    return (width + unit - 1) // unit * unit
end

-- Calls f(tensor, name) for the operands of a node.
local function each_operand(node, f)
    for _, name in ipairs(node.signature.ins) do
        if node.ins[name] then f(node.ins[name], name) end
    end
    for _, name in ipairs(node.signature.outs) do
        if node.outs[name] then f(node.outs[name].tensor, name) end
    end
end

-- Whether a node sees a value as rows of its own last axis.
local function by_own_rows(node, t, name)
    local seen, out = node.shapes and node.shapes[name] or t.shape, node.outs[name]
    return seen[#seen] == t.shape[#t.shape] and not (out and out.columns)
end

-- Takes values out of the set that only some operands of `list` are in; true if there was one.
local function agree(set, list)
    local all, some = true, false
    for _, t in ipairs(list) do
        all, some = all and set[t] ~= nil, some or set[t] ~= nil
    end
    if all or not some then return false end
    for _, t in ipairs(list) do set[t] = nil end
    return true
end

-- The values that are to lie so, as a set, and lists of those that must lie alike: what one node takes so, and what a
-- node and its twin do, which have one kernel.
local function candidates(g, config)
    local set, wanted, refused, alike = {}, {}, {}, {}
    local function look(node)
        if node.op == "times" then
            for _, c in ipairs(node.carries) do
                refused[c.init], refused[c.arg], refused[c.result], refused[c.out] = true, true, true, true
            end
            return
        end
        local takes, is_product = config.strides(node, config.ops[node.op])
        local list = {}
        each_operand(node, function(t, name)
            if not ordered.find(takes, name) or not by_own_rows(node, t, name) then
                refused[t] = true
            else
                wanted[t], list[#list + 1] = wanted[t] or is_product, t
                local other = node.twin and (node.twin.ins[name] or (node.twin.outs[name] or {}).tensor)
                if other then alike[#alike + 1] = { t, other } end
            end
        end)
        alike[#alike + 1] = list
    end
    for _, body in ipairs(BODIES) do graph.walk(g[body], look) end
    for _, t in ipairs(g.tensors) do
        local width = t.shape[#t.shape]
        if t.kind == "value" and wanted[t] and not refused[t] and padded(width) > width then set[t] = true end
    end
    return set, alike
end

function strides.run(g, config)
    if not (config.strides and g.half) then return true end
    local set, alike = candidates(g, config)
    local changed = true
    while changed do
        changed = false
        for _, list in ipairs(alike) do changed = agree(set, list) or changed end
    end
    for _, t in ipairs(g.tensors) do
        if set[t] then
            t.row = padded(t.shape[#t.shape])
            graph.decide(g, t.name, ("rows %d apart"):format(t.row), "a product moves 16 bytes of them at once")
        end
    end
    return true
end

return strides
