-- placed: what a program for a device says of parameters that lie in host memory (passes/placement.lua,
-- runtime/ranks/placed.h). Of such a chunk the optimizer's state, and maybe values and gradients too, lie in pinned
-- memory, which kernels read and write by the same addresses; the host updates it, by a kernel in C.
local c_text = require "emit.targets.c_text"
local ordered = require "base.ordered"
local text = require "base.text"

local placed = {}

--- Whether something lies in host memory.
function placed.is_used(g) return g.placement ~= nil end

-- Whether all chunks have a field: "state_on_host" or "values_on_host".
local function all_have(g, field)
    for _, bucket in ipairs(g.buckets) do
        if not bucket[field] then return false end
    end
    return true
end

--- Whether some chunks have their values on the device and their state in host memory.
function placed.is_mixed(g)
    for _, bucket in ipairs(g.buckets) do
        if bucket.state_on_host and not bucket.values_on_host then return true end
    end
    return false
end

--- Whether the device updates nothing: the states of all chunks lie in host memory.
function placed.updates_all(g)
    for _, bucket in ipairs(g.buckets) do
        if not bucket.state_on_host and not bucket.collected then return false end
    end
    return placed.is_used(g)
end

--- The elements that the hosts of all ranks update.
function placed.updated(g)
    local sum = 0
    for _, bucket in ipairs(g.buckets) do sum = sum + (bucket.state_on_host and bucket.n or 0) end
    return sum
end

--- The shard of an array's elements that lie on the device: of "parameters", "gradients" or of a state. nil: all of
--- them do; false: none does.
function placed.on_device(g, array)
    if not placed.is_used(g) then return nil end
    local is_state = array:find "^state_" ~= nil
    if all_have(g, is_state and "state_on_host" or "values_on_host") then return false end
    return is_state and "placed.state" or "placed.values"
end

--- Whether some of what may lie in host memory lies on the device.
function placed.has_some(g)
    return placed.is_used(g) and not all_have(g, "values_on_host")       -- then all states are on the host too
end

--- The table of the places of buckets, for memory.c; nothing where all lies on the device.
function placed.table(g)
    if not placed.is_used(g) then return "" end
    local list = ordered.collect(g.buckets, function(bucket)
        return bucket.values_on_host and "GA_ON_HOST" or bucket.state_on_host and "GA_STATE_ON_HOST" or "GA_ON_DEVICE"
    end)
    return "/* Where a rank's own cut of each bucket lies. */\n"
        .. c_text.wrap("", "static const ga_placing PLACES[] = {", list, "};") .. "\n\n"
end

--- The array that a kernel of the device measures, of parts that lie on the device or not; nil: as all others.
function placed.measured(g, node, array)
    local region = node.scope
    if not placed.is_used(g) or not region or region.part ~= "own" or array[1] ~= "flat" then return nil end
    return ("values_of(m, r, m->flat_%s, m->device_%s)"):format(array[2], array[2])
end

--- The table of the places in the pool, for step.c; false without a pool.
function placed.pool(g)
    local pool = placed.is_used(g) and g.placement.pool
    if not pool then return false end
    return text.block(c_text.wrap("", "static const int64_t POOL[] = {", ordered.collect(g.buckets, function(_, i)
        return tostring(pool.kept[i] or -1)
    end), "};"))
end

--- Fields of the struct model.
function placed.fields(g)
    if not placed.is_used(g) then return {} end
    local list = { "ga_placed placed;        /* which of this rank's elements lie on the device, and which do not */",
        "part_lists on_host;      /* of its parts: those that the host updates */",
        "ga_team *team;           /* the threads of the host's updates */", "ga_threads threads;",
        "ga_err error;            /* of worker 0 */" }
    if not placed.updates_all(g) then
        table.insert(list, 3, "part_lists on_device;    /* and the device */")
    end
    if placed.is_mixed(g) then
        list[#list + 1] = ("ga_event here[%d]; /* the gradient of a bucket has come to the host */"):format(#g.buckets)
    end
    return list
end

--- The lines that open it behind the division, and those that close it.
function placed.opening(g)
    return placed.is_used(g) and { "GA_TRY(ga_placed_open(&m->placed, &m->division, PLACES, e));" } or {}
end

function placed.closing(g) return placed.is_used(g) and { "ga_placed_close(&m->placed);" } or {} end

return placed
