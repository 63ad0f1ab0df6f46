-- sent: what a program says of parameters that travel in 16 bits to where they are gathered (passes/gathered.lua,
-- runtime/files/sent.h).
local bucket_spans = require "graph.bucket_spans"
local c_text = require "emit.targets.c_text"
local graph = require "graph.graph"
local ordered = require "base.ordered"

local sent = {}

--- Whether some parameters travel in 16 bits.
function sent.is_used(g) return g.chunks ~= nil and g.chunks.sent end

--- Bytes of a bucket's parameters on their way.
function sent.bytes(g, bucket) return bucket.gathered * (g.real == "f64" and 8 or 4) end

--- The elements of `real` that the parts of a rank take, as { from, behind } for each bucket.
function sent.elements(g, pieces)
    local sum = 0
    for i, bucket in ipairs(g.buckets) do
        local from, behind = pieces[i][1], pieces[i][2]
        local n = behind - from
        for _, param in ipairs(bucket.half and bucket.params or {}) do
            local taken = bucket_spans.taken(param.flat.n)
            for l = 0, graph.is_half(param.value) and param.count - 1 or -1 do
                local at = param.flat.offset + l * param.flat.stride
                n = n - math.max(0, math.min(behind, at + taken) - math.max(from, at)) // 2
            end
        end
        sum = sum + (bucket.half and n or 0)
    end
    return sum
end

--- The fields of the struct model.
function sent.fields(g)
    if not sent.is_used(g) then return {} end
    return { "ga_sent sent;            /* what this rank sends of its parameters */",
        "uint16_t *words;         /* it, as kernels read it: 16 bits, or two words each */" }
end

--- The lines that open it behind the division, and those that close it.
function sent.opening(g)
    if not sent.is_used(g) then return {} end
    return { ("GA_TRY(ga_sent_open(&m->sent, &m->division, PARAMS, HALVES, TRAINED_PARAMS, GA_%s, e));"):format(
            g.half:upper()),
        "GA_TRY(open_shard(m, ARENA_SENT, \"sent\", &(ga_shard){.elements = m->sent.words / 2}, e));",
        "m->words = (uint16_t *)m->memory[ARENA_SENT].base;" }
end

function sent.closing(g) return sent.is_used(g) and { "ga_sent_close(&m->sent);" } or {} end

--- The table of the parameters that travel in 16 bits; params: in the order of the flat space.
function sent.table(g, params)
    if not sent.is_used(g) then return {} end
    local list = ordered.collect(params, function(p) return p.used and tostring(graph.is_half(p.value)) or nil end)
    return { "", "/* Whether kernels read a trained parameter in 16 bits. */",
        c_text.wrap("", "static const bool HALVES[TRAINED_PARAMS] = {", list, "};") }
end

return sent
