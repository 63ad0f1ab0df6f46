-- pieces: how the flat space is divided over so many ranks, and how many elements of an array each has.
local ordered = require "base.ordered"

local pieces = {}

-- Elements that every cut is a multiple of: GA_CUT of the runtime.
local CUT = 16

--- n elements, as the next piece behind them in a rank's memory begins.
function pieces.aligned(n) return (n + CUT - 1) // CUT * CUT end

--- The first elements of tensors that belong to one rank each.
function pieces.starts(g)
    local list = {}
    for _, collective in ipairs(g.collectives) do
        if collective.sharing == "tensor" then
            for _, param in ipairs(g.params) do
                for l = 0, param.used and param.count - 1 or -1 do
                    local at = param.flat.offset + l * param.flat.stride
                    if at >= collective.offset and at < collective.offset + collective.n then list[#list + 1] = at end
                end
            end
        end
    end
    table.sort(list)
    return list
end

--- The elements of each rank in this division, as { from, behind } for each bucket.
function pieces.of(g, ranks)
    local list = {}
    local cuts = host.division(ordered.collect(g.collectives, function(x) return { x.offset, x.n, x.sharing } end),
        pieces.starts(g), ranks)
    for rank = 1, ranks do
        list[rank] = ordered.collect(g.collectives, function(x)
            local own = cuts[x.bucket]
            return { x.offset + own[rank], x.offset + own[rank + 1] }
        end)
    end
    return list
end

--- The elements of each bucket that the rank has which has most of it.
function pieces.most(g, ranks)
    local most = {}
    for _, list in ipairs(pieces.of(g, ranks)) do
        for i, piece in ipairs(list) do most[i] = math.max(most[i] or 0, pieces.aligned(piece[2] - piece[1])) end
    end
    return most
end

--- The pieces of an array, "parameters", "gradients" or a state, that lie on the device (passes/placement.lua): those
--- of other buckets are empty.
function pieces.on_device(g, name, list)
    local away = (name == "parameters" or name == "gradients") and "values_on_host" or "state_on_host"
    return ordered.collect(list, function(piece, i)
        return { piece[1], g.buckets[i][away] and piece[1] or piece[2] }
    end)
end

--- Elements that a rank with these pieces has of a state: as ga_layout_shard of the runtime takes them.
function pieces.elements(g, name, list)
    local sum, dense = 0, not g.states:has(name) or g.states:get(name).dense
    for _, piece in ipairs(list) do
        if dense then sum = sum + pieces.aligned(piece[2] - piece[1]) end
        for _, p in ipairs(dense and {} or g.params) do
            local kept = p.state[name] and p.kept[name]
            for l = 0, kept and p.count - 1 or -1 do
                local first = p.flat.offset + l * p.flat.stride
                local from, behind = math.max(first, piece[1]), math.min(first + p.flat.n, piece[2])
                local n = kept and (kept.n == p.flat.n and behind - from or from == first and kept.n) or 0
                if from < behind then sum = sum + pieces.aligned(n) end
            end
        end
    end
    return sum
end

return pieces
