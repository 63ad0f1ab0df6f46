-- verify_chunks: on every path over a micro-batch, from forward to evaluation and from forward to backward, each read
-- of a trained parameter lies between the need of its chunk and the start of a gather that takes its window. A path is
-- walked as the program runs it, iteration by iteration.
local bucket_spans = require "graph.bucket_spans"

-- The chunks whose memory a path has: there, those that were gathered and waited for; coming, gathers under way.
local Path = {}
Path.__index = Path

-- Where kernels look for layer l of a parameter, from the beginning of the window of bucket i; and where it is there.
local function places_of(g, param, i, l)
    return bucket_spans.layer_at(param.chunk, param, l) - g.chunks.places[i],
        bucket_spans.gathered_at(g.buckets[i], param.flat.offset + l * param.flat.stride)
end

function Path:start(g, i, broken)
    local places, from = g.chunks.places, g.chunks.places[i]
    for other, bucket in ipairs(g.buckets) do
        local at = places[other]
        if at and at < from + g.buckets[i].gathered and from < at + bucket.gathered then
            if self.coming[other] and other ~= i then
                broken(("the gather of chunk %d takes the memory of chunk %d, which is under way"):format(i, other))
            end
            self.there[other] = nil
        end
    end
    self.coming[i] = true
end

-- A node that needs place k of an order: the gathers that start, and the one that has ended.
function Path:need(g, order, k, broken)
    for i = k == 0 and 0 or k + g.chunks.prefetch, math.min(k + g.chunks.prefetch, #order - 1) do
        self:start(g, order[i + 1], broken)
    end
    local chunk = order[k + 1]
    self.seen(chunk)
    if not self.coming[chunk] then broken(("needs chunk %d, whose gather has not started"):format(chunk)) end
    self.coming[chunk], self.there[chunk] = nil, true
end

function Path:walk(g, body, l, broken)
    for _, node in ipairs(body) do
        local function complain(message) broken(node, message) end
        for _, entry in ipairs(node.gathers or {}) do
            local k = bucket_spans.number(entry, l)
            if k then self:need(g, g.chunks.orders[entry.pass], k, complain) end
        end
        if node.op == "times" then
            for i = 0, node.count - 1 do
                self:walk(g, node.body, node.step > 0 and i or node.count - 1 - i, broken)
            end
        else
            bucket_spans.each_read(node, function(param)
                self.seen(self:check_read(g, param, param.region and l or 0, complain), node, l)
            end)
        end
    end
end

-- Returns the chunk that is read.
function Path:check_read(g, param, l, complain)
    local i = bucket_spans.bucket_of(g, param, l)
    if not self.there[i] then complain(("reads %s of chunk %d, which is not there"):format(param.name, i)) end
    local read, lies = places_of(g, param, i, l)
    if read ~= lies then
        complain(("reads layer %d of %s at element %d of chunk %d, and it lies at %d"):format(l, param.name, read, i,
            lies))
    end
    return i
end

local function ignore() end

--- Calls broken(node, message) where a path reads what is not there. seen: nil, or called in the order of a path with
--- the name of its second body, a chunk, and the node and iteration that read it; without these where it has arrived.
return function(g, broken, seen)
    for _, last in ipairs { "evaluation", "backward" } do
        local path = setmetatable({ there = {}, coming = {} }, Path)
        path.seen = seen and function(...) seen(last, ...) end or ignore
        path:walk(g, g.forward, 0, broken)
        path:walk(g, g[last], 0, broken)
    end
end
