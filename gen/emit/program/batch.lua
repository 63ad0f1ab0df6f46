-- batch: how a micro-batch lies in memory: its fields one behind the other at multiples of 64 bytes,
-- then its ga_micro, as runtime/data/data.h says; the same on host and device.
local graph = require "graph.graph"
local ordered = require "base.ordered"

local batch = {}

local ALIGN, MICRO_BYTES = 64, 64

local BYTES = { f32 = 4, f64 = 8, i32 = 4 }

--- { tensors = the fields and the ga_micro, at = bytes from the beginning for each, bytes = of all }.
function batch.layout(g)
    local tensors = table.move(g.inputs, 1, #g.inputs, 1, {})
    local at, total = {}, 0
    for i, t in ipairs(tensors) do
        at[i] = total
        total = total + (graph.elements(t.shape) * BYTES[t.dtype] + ALIGN - 1) // ALIGN * ALIGN
    end
    tensors[#tensors + 1], at[#at + 1] = g.micro, total
    return { tensors = tensors, at = at, bytes = total + MICRO_BYTES }
end

--- The lines of an enum: where each field begins, and how much all take.
function batch.sizes(g)
    local layout = batch.layout(g)
    local places = ordered.collect(layout.tensors, function(t, i)
        return ("AT_%s = %d"):format(t.name:upper(), layout.at[i])
    end)
    return { table.concat(places, ", ") .. ", /* bytes: the parts of a micro-batch */",
        ("BATCH_BYTES = %d, /* of a micro-batch */"):format(layout.bytes) }
end

--- The fields of the struct batch: each `declare(tensor)` with its comment behind.
function batch.fields(g, target)
    local list, width = {}, 0
    for i, t in ipairs(batch.layout(g).tensors) do
        local declaration, comment = target.batch_field(t)
        list[i] = { declaration, t == g.micro and "of these rows: how many, where in the cycle" or comment }
        width = math.max(width, #declaration)
    end
    return ordered.collect(list, function(row)
        return row[1] .. (" "):rep(width - #row[1]) .. " /* " .. row[2] .. " */"
    end)
end

--- The values of a struct batch whose memory begins at `at`.
function batch.places(g, target)
    return ordered.collect(batch.layout(g).tensors, function(t)
        return target.batch_place(t, "at + AT_" .. t.name:upper())
    end)
end

--- Bytes of an array of g.arenas.
function batch.arena_bytes(g, arena) return arena.elements * BYTES[arena.dtype or g.real] end

return batch
