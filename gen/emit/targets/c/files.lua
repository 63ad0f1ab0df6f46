-- c_files: the C target's parts of model.h, model.c, main.c and the Makefile, its arenas, and its files of the runtime.
-- There is no device.
local batch = require "emit.program.batch"
local ordered = require "base.ordered"
local state_file = require "passes.state_file"
local scaler = require "emit.boundary.scaler"
local statistics = require "emit.program.statistics"
local text = require "base.text"

local c_files = {}

local NOTHING = text.block("")

-- Exchanges under way at once: GA_WIRES of runtime/ranks/comm.h, which divides the arena by that.
local WIRES = 4

-- Bytes of one of them: those of the largest bucket, but no more than a bucket should have, and enough for 1,024 ranks.
local function wire_bytes(g, config)
    local largest, element = 0, g.real == "f64" and 8 or 4
    for _, bucket in ipairs(g.buckets) do largest = math.max(largest, bucket.n) end
    return math.max(math.min(largest, config.bucket_elements) * element, 1024 * 16 * element) // 1
end

--- The arenas of training.
function c_files.arenas(g, config, add)
    for _, arena in ipairs(g.arenas) do
        add(arena.name, batch.arena_bytes(g, arena), arena.doc, nil, arena.sharded, nil,
            arena.filed and { held = 1, windows = state_file.WINDOWS })
    end
    if config.mode.ranks then add("wires", WIRES * wire_bytes(g, config), "parts of the sums over the ranks") end
    local numbers = statistics.most(g, config.ops)
    if numbers > 0 then
        add("statistics", numbers * 8, "statistics of batchnorm, of all ranks", nil, nil, true)
    end
end

--- The arguments of main.c and the README.
function c_files.main() return { device = false, parallel = false } end

--- More arguments of model.h.
function c_files.header()
    return ordered.copy(c_files.main(), { device_arenas = NOTHING, step_fields = NOTHING, device_fields = NOTHING,
        graphs = NOTHING })
end

--- More lines of model.h's sizes.
function c_files.sizes() return {} end

--- More arguments of model.c.
function c_files.model()
    return ordered.copy(c_files.main(), { device_arenas = NOTHING })
end

--- More constants of model.c: { name, value }.
function c_files.constants() return {} end

--- More assignments of model.c's place().
function c_files.flat_places() return {} end

--- Libraries and further dependencies in the Makefile.
function c_files.makefile()
    return { device = false, libs = NOTHING }
end

--- Further parts of the runtime that the program links.
function c_files.runtime(config)
    local list = scaler.moves(config) and { "loop/scaler" } or {}
    if config.sync_batchnorm then list[#list + 1] = "ranks/moments" end
    return list
end

--- The implementations of comm.h that the program can be built with.
function c_files.engines(config) return config.mode.ranks and { "self", "mpi" } or { "self" } end

--- Whether a header of the runtime belongs to the program.
function c_files.wants_header(name)
    return not (name:match("device") or name:match("cuda") or name:match("nccl")
        or name:match("sha256"))
end

return c_files
