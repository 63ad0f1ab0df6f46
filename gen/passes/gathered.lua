-- gathered: how kernels read parameters that are divided over the ranks. Nothing is packed once per update: a weight
-- is gathered for each pass, and a copy would be made as often.
--
-- Where products read 16 bits, and the target can (config.narrow_wire), a parameter that products alone read is
-- gathered in 16 bits: its value has that type, while what its rank keeps stays f32. In the window of a bucket with
-- such parameters elements of these take half the memory of the others, in the order of the flat space:
--
--   ln.weight f32 (16)   c_attn.weight bf16 (48, 16)   c_attn.bias f32 (48)   ...
--
-- Any other parameter is gathered as it is; products read a copy that is rounded behind the gather, as of a table that
-- an embedding reads too.
local bucket_spans = require "graph.bucket_spans"
local graph = require "graph.graph"
local ordered = require "base.ordered"

local gathered = {}

local BODIES = { "forward", "backward", "evaluation" }

-- Whether a node reads an input in 16 bits: weights of products.
local function reads_half(config, node, key)
    local op = config.ops[node.op]
    return op and op.rounds and op.half[key] or false
end

-- Whether products alone read a trained parameter or joint parameter, by unit; nil: nothing reads it.
local function readers_of(g, config)
    local narrow = {}
    for _, name in ipairs(BODIES) do
        graph.walk(g[name], function(node)
            local halves = {}
            for key, t in ordered.each(node.ins or {}) do
                halves[t] = halves[t] ~= false and reads_half(config, node, key)
            end
            for _, t in ipairs(graph.reads(node)) do
                if t.kind == "param" and t.param.used then
                    narrow[t.param] = narrow[t.param] ~= false and (halves[t] or false)
                end
            end
        end)
    end
    return narrow
end

-- Gives the parameters that products alone read the type that these read.
local function narrow_values(g, config)
    local narrow = readers_of(g, config)
    for _, unit in ipairs(graph.units(g)) do
        local members, all = graph.members(unit), narrow[unit]
        for _, param in ipairs(members) do all = all and narrow[param] ~= false end
        if all then
            unit.value.dtype = g.half
            for _, param in ipairs(members) do param.value.dtype = g.half end
            graph.decide(g, unit.name, "gathered in " .. g.half, "products alone read it")
        end
    end
end

-- Rounds the weights that the nodes of a body read in 16 bits before the first of them: a weight of a loop's layers in
-- the loop, any other before all loops. reader: the loop around the body; made: copies that stand before it.
local function round_weights(g, config, body, reader, made)
    local nodes, b, inside = table.move(body, 1, #body, 1, {}), config.builder, {}
    for i = 1, #body do body[i] = nil end
    local function copy_of(param, node)
        local copies = param.region and inside or made
        if not copies[param] then
            b.at, b.path, b.body, b.scope = node.at, {}, param.region and body or made.body, param.region and reader
            copies[param] = b:cast(param.value, g.half, param.value.name .. "_" .. g.half)
            copies[param].rowless = true
        end
        return copies[param]
    end
    for _, node in ipairs(nodes) do
        if not reader then made.body = body end
        if node.op == "times" then round_weights(g, config, node.body, node, made) end
        for _, key in ipairs(node.signature and node.signature.ins or {}) do
            local t = node.ins[key]
            if t and t.kind == "param" and t.param.used and not graph.is_half(t) and reads_half(config, node, key) then
                node.ins = ordered.copy(node.ins, { [key] = copy_of(t.param, node) })
            end
        end
        body[#body + 1] = node
    end
end

-- Sets what the windows of buckets take: their sizes, and whether they have parameters of 16 bits.
local function set_windows(g, config)
    for _, bucket in ipairs(g.buckets) do
        for _, param in ipairs(bucket.params) do bucket.half = bucket.half or graph.is_half(param.value) end
        bucket.gathered = bucket_spans.gathered_at(bucket, bucket.offset + bucket.n)
        config.sends_half = config.sends_half or bucket.half or false
    end
end

--- Sets how weights reach products, and what the windows of the buckets take.
function gathered.set(g, config)
    if g.half and config.narrow_wire then narrow_values(g, config) end
    for _, name in ipairs(g.half and BODIES or {}) do round_weights(g, config, g[name], nil, {}) end
    set_windows(g, config)
    for _, param in ipairs(graph.units(g)) do
        if param.used and #param.shape > 1 then
            graph.decide(g, param.name, "home", "it is gathered for each pass, and a copy would be made as often")
        end
    end
end

return gathered
