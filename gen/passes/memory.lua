-- memory: gives every tensor an arena and an offset, in elements of the program's type.
--
--   y: activations at 1024, alive from forward 0 to backward 3
--
-- Values of the outermost scope and whole regions share one timeline: forward, backward,
-- evaluation, boundary. A value of a region that its reverse reads later has `count` slots there; all other
-- values of a region lie in the region's frame, planned the same way as one block of the timeline.
-- A carried value has count + 1 slots if it is kept (slot k holds the argument of iteration k),
-- else two that alternate.
local graph = require "graph.graph"
local ordered = require "base.ordered"
local pack = require "passes.pack"

local memory = { name = "memory", doc = "an arena and an offset for every tensor" }

local ALIGN = 16

local function aligned(n) return (n + ALIGN - 1) // ALIGN * ALIGN end

-- Blocks of one scope: first and last position at which each of its values is touched. Positions rise; a value that a
-- branch touches stays up to a later one, `last`.
local function touch(blocks, index, key, size, position, last)
    local block = index[key]
    if not block then
        block = { key = key, size = size, from = position, to = position }
        index[key], blocks[#blocks + 1] = block, block
    end
    block.to = math.max(block.to, last or position)
end

-- Calls f(tensor) for each tensor that a node reads or writes, also inside a region.
local function each_touched(node, f)
    for _, t in ipairs(graph.reads(node)) do f(t) end
    for _, out in ipairs(graph.writes(node)) do f(out.tensor) end
    for _, c in ipairs(node.carries or {}) do
        f(c.arg)
        f(c.result)
        f(c.out)
    end
    for _, inner in ipairs(node.body or {}) do each_touched(inner, f) end
end

local function carry_of(g)
    local map = {}
    for _, body in ipairs { g.forward, g.backward } do
        graph.walk(body, function(node)
            for _, c in ipairs(node.carries or {}) do
                map[c.init], map[c.arg], map[c.result], map[c.out] = c, c, c, c
            end
        end)
    end
    return map
end

-- Values of a region that are touched outside it (by its reverse).
local function kept_values(g)
    local kept = {}
    for _, body in ipairs { g.forward, g.backward, g.evaluation, g.boundary } do
        graph.walk(body, function(node)
            if node.op ~= "times" then
                for _, t in ipairs(graph.reads(node)) do
                    if t.kind == "value" and t.scope and not graph.inside(node.scope, t.scope) then
                        kept[t] = true
                    end
                end
            end
        end)
    end
    return kept
end

local function size_of(t) return aligned(graph.places(t)) end

-- Plans the frame of one region; places get absolute offsets when the frame has its own.
local function plan_frame(region, context)
    local blocks, index = {}, {}
    for position, node in ipairs(region.body) do
        local last = node.branch and #region.body
        each_touched(node, function(t)
            if t.kind == "value" and t.scope == region and not context.carry[t]
                and not context.kept[t] then
                touch(blocks, index, t, size_of(t), position, last)
            end
        end)
    end
    region.frame = { blocks = blocks, size = pack(blocks) }
    return region.frame.size
end

local function plan_timeline(g, context)
    local blocks, index, position, last = {}, {}, 0, nil
    local function touch_value(t)
        local carry = context.carry[t]
        if carry then
            touch(blocks, index, carry, size_of(t) * carry.slots, position, last)
        elseif t.kind == "value" and (not t.scope or context.kept[t]) then
            touch(blocks, index, t, size_of(t) * (t.scope and t.scope.count or 1), position, last)
        end
    end
    for _, body in ipairs { g.forward, g.evaluation, g.backward, g.boundary } do
        for _, node in ipairs(body) do
            position = position + 1
            last = node.branch and #g.forward + #g.evaluation + #g.backward
            if node.op == "times" then
                touch(blocks, index, node, plan_frame(node, context), position)
            end
            each_touched(node, touch_value)
        end
        if body == g.evaluation and g.output then touch_value(g.output) end -- it is there to be read
    end
    return blocks, pack(blocks)
end

local function place_carry(carry, offset)
    local stride = size_of(carry.arg)
    local count, kept = carry.region.count, carry.kept
    local function at(t, slot)   -- slot: "first", "now", "next", "last"
        t.place = { arena = "activations", offset = offset, stride = stride, slots = carry.slots,
            slot = slot, carry = carry }
    end
    at(carry.arg, "now")
    at(carry.result, "next")
    carry.init.place = { arena = "activations", offset = offset, slots = 1 }
    local last = kept and count or count % 2
    carry.out.place = { arena = "activations", offset = offset + last * stride, slots = 1 }
end

local function place_all(blocks)
    for _, block in ipairs(blocks) do
        local key = block.key
        if key.op == "times" then
            for _, inner in ipairs(key.frame.blocks) do
                inner.key.place = { arena = "activations", slots = 1,
                    offset = block.offset + inner.offset }
            end
        elseif key.region then
            place_carry(key, block.offset)
        else
            local slots = key.scope and key.scope.count or 1
            key.place = { arena = "activations", offset = block.offset, stride = size_of(key),
                slots = slots, from = block.from, to = block.to }
        end
    end
end

-- Parameters, gradients, state: arrays over the flat space, or of a part of it. Views: an arena of their own.
local function place_flat(g)
    local views = g.narrows and g.trained_elements // 2 or 0     -- behind the copies that an update writes
    local all = table.move(g.joints, 1, #g.joints, #g.params + 1, table.move(g.params, 1, #g.params, 1, {}))
    for _, param in ipairs(all) do
        local function at(t, arena, flat)
            flat = flat or param.flat
            local each = graph.is_half(t) and 2 or 1 -- in one of the program's type
            t.place = { arena = arena, offset = flat.offset // each, stride = flat.stride // each, slots = param.count }
        end
        at(param.value, "parameters")
        local chunk = param.chunk
        if chunk then
            param.value.place.offset, param.value.place.stride = chunk.offset, param.flat.stride
        end
        if param.gradient then at(param.gradient, "gradients") end
        if param.residue then at(param.residue, "residues") end
        if param.collected then at(param.collected, "collected") end
        for _, name in ipairs(g.state_names) do
            if param.state and param.state[name] then at(param.state[name], "state_" .. name, param.kept[name]) end
        end
        for _, view in ordered.each(param.views) do
            if view.def then
                view.place = { arena = "views", offset = views, stride = size_of(view), slots = param.count }
                views = views + size_of(view) * param.count
            else
                at(view, "views")
            end
        end
    end
    return views
end

-- The name of a block of the timeline: its value, the values that a region hands on, a region's working memory.
local function name_of(key)
    if key.op == "times" then return key.name .. ", an iteration" end
    if key.region then return key.arg.name end
    return key.name
end

--- Gives the values of a graph places in the arena of activations; returns their blocks on the timeline, and the
--- elements of the arena.
function memory.values(g)
    local blocks, height = plan_timeline(g, { carry = carry_of(g), kept = kept_values(g) })
    place_all(blocks)
    return blocks, height
end

function memory.run(g)
    local blocks, height = memory.values(g)
    g.timeline = {}
    for i, block in ipairs(blocks) do
        g.timeline[i] = { name = name_of(block.key), offset = block.offset, size = block.size, from = block.from,
            to = block.to }
    end
    for _, t in ipairs(g.inputs) do t.place = { arena = "batch", offset = 0, slots = 1 } end
    g.micro.place = { arena = "batch", offset = 0, slots = 1 }
    g.seed.place = { arena = "step", offset = 0, slots = 1 }
    g.sums.place = { arena = "sums", offset = 0, slots = 1 }
    local views = place_flat(g)
    local divided, rest = g.sharded.parameters, g.flat_elements - g.trained_elements
    g.arenas = {}
    local function add(name, elements, doc, more)
        g.arenas[#g.arenas + 1] = ordered.copy({ name = name, elements = elements, doc = doc }, more)
    end
    add("parameters", divided and g.trained_elements or g.flat_elements, "their values",
        { sharded = divided and "parameters" or nil })
    if divided then
        add("chunks", g.chunks.elements, "parameters in use")
        if g.chunks.sent then add("sent", 0, "what is gathered in 16 bits", { sharded = "sent" }) end
        if rest > 0 then add("untrained", rest, "frozen parameters, running statistics") end
    end
    add("gradients", g.half_sums and (g.summed_elements + 1) // 2 or g.summed_elements, "their sums over a cycle",
        { sharded = g.sharded.gradients and "gradients" or nil })
    if g.sharded.gradients then
        add("windows", g.windows.elements, "gradients on their way")
        local collected = g.summed_elements - g.trained_elements
        if collected > 0 then add("collected", collected, "running statistics of a cycle") end
    end
    if g.residues then add("residues", g.summed_elements, "what the sums round off") end
    for _, name in ipairs(g.state_names) do
        add("state_" .. name, g.states:get(name).elements, "state of the optimizer", { state = true,
            sharded = g.sharded.state and name or nil,
            filed = g.state_file and ordered.find(g.state_file.arrays, name) ~= nil or nil })
    end
    add("views", views, "copies of weights, as products read them")
    add("activations", height, "values of a micro-step")
    add("partials", g.partials, "sums of the gradient norm" .. (g.partials > 2 * g.norm.tiles and ", of each tensor"
        or ""), { dtype = "f64" })
    return true
end

return memory
