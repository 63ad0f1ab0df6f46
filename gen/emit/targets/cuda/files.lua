-- cuda_files: the CUDA target's parts of model.h, model.c, main.c and the Makefile, its arenas, and its files of the
-- runtime.
local batch = require "emit.program.batch"
local chunks = require "emit.boundary.chunks"
local cuda_step = require "emit.targets.cuda.step"
local graphs = require "emit.targets.cuda.graphs"
local hopper = require "emit.targets.cuda.hopper"
local ordered = require "base.ordered"
local state_file = require "passes.state_file"
local statistics = require "emit.program.statistics"
local text = require "base.text"
local windows = require "emit.boundary.windows"

local cuda_files = {}

local PAGE = 4096

local function lines(list) return text.block(table.concat(list, "\n")) end

-- The arena that only a device with twins reserves (runtime/device/twins.c).
local PARTS = "device_parts"

-- Arenas of which no file has anything.
local DEVICE_ALONE = { views = true, activations = true, partials = true, windows = true, chunks = true, pool = true }

--- The arenas of training: device memory, host copies of arrays in files, and buffers between host and device.
function cuda_files.arenas(g, config, add)
    local size = g.real == "f64" and 8 or 4
    for _, arena in ipairs(g.arenas) do
        add("device_" .. arena.name, batch.arena_bytes(g, arena), "device: " .. arena.doc, "device",
            arena.sharded, nil, arena.filed and { held = 1, windows = 1 })
    end
    add("device_batches", (2 * config.largest + 1) * batch.layout(g).bytes,
        "device: two cycles of batches, and a single one", "device")
    local parts = hopper.parts_bytes(hopper.of_graph(g))
    if parts > 0 then add(PARTS, parts, "device: parts of products, on sm_90 alone", "device") end
    local layered = #(g.layer_rates or {}) * g.groups:size() * 16 * size   -- at most 16 numbers of a layer
    add("device_step", PAGE + layered, "device: what an update needs beside the gradient", "device")
    for _, arena in ipairs(g.arenas) do
        if not DEVICE_ALONE[arena.name] then
            local placed = g.placement ~= nil and arena.sharded ~= nil
            add(arena.name, batch.arena_bytes(g, arena), placed and "pinned: of chunks on the host; copy for files of "
                .. "others" or "copy for files", placed and "pinned" or nil, arena.sharded,
                nil, arena.filed and { held = 1, windows = 0 })
        end
    end
    if g.state_file then
        add("state_windows", 0, "pinned: states on their way between file and device", "pinned", nil, nil,
            { held = 0, windows = state_file.WINDOWS * #g.state_file.arrays })
    end
    local numbers = statistics.most(g, config.ops)
    if numbers > 0 then
        add("device_statistics", numbers * 8, "device: statistics of batchnorm, of all ranks", "device", nil, true)
    end
    add("transfer", PAGE + 2 * layered, "pinned: between host and device", "pinned")
end

local function device_arenas(facts)
    return ordered.collect(facts.arenas, function(a) return a.memory == "device" and a.name ~= PARTS and a or nil end)
end

-- Fields of `model` that only a program with a device has.
local function model_fields(g, config)
    local list = {
        "ga_device *device;",
        "ga_address device_memory[DEVICE_ARENAS];",
        "ga_address device_w, device_g; /* the flat space again: the device's is the true one */",
    }
    if g.residues then list[#list + 1] = "ga_address device_residue;" end
    for _, name in ipairs(g.state_names) do
        list[#list + 1] = ("ga_address device_state_%s;"):format(name)
    end
    local common = {
        "ga_address device_partials; /* sums over tiles of the gradient and of tensors; see PARTIALS */",
        "ga_address device_batches;  /* a ring of two cycles, and a single batch */",
        "ga_address block;           /* the step block */",
        "transfer *transfer;",
        "bool pinned[ARENAS];        /* released by the driver */",
        "ga_kernel kernels[KERNELS];",
        "ga_graph *graphs[GRAPHS];",
        "ga_cuda_stream stream, copying;  /* what is computed; what is copied beside it */",
        "ga_event arrived[2], consumed[2]; /* the batches of a slot of the ring */",
        "ga_event decided[2];        /* the step block of a slot's cycle has come back */",
        "int slot;                   /* of the ring, for the next cycle */",
        "bool ahead;                 /* its batches were sent during the last one */",
        "bool begun;                 /* and its work */",
        "bool goes_on;               /* nothing is to be done between the coming cycle and the next one */",
        "bool eager;                 /* kernel by kernel, without graphs */",
        "ga_event probed[2];         /* of train-probe: before and behind a kernel */",
    }
    if #hopper.of_graph(g) > 0 then
        common[#common + 1] = "ga_twins twins;             /* kernels for sm_90a beside others, and which are taken */"
        common[#common + 1] = "ga_twin_state twin_states[TWINS];"
    end
    table.move(common, 1, #common, #list + 1, list)
    if g.branches then
        list[#list + 1] = "ga_cuda_stream beside;           /* calls beside those of stream */"
        list[#list + 1] = "ga_event parted;                 /* where a branch begins */"
        list[#list + 1] = g.joins and ("ga_event ended[%d];              /* behind each */"):format(g.branches) or nil
    end
    if config.mode.ranks then
        local ranks = {
            "ga_nccl *nccl;",
            ("ga_cuda_stream reducing;         /* %s */"):format(g.sharded.parameters
                and "gathers, and sums over the ranks, beside the kernels"
                or "sums over the ranks beside the backward pass"),
            "ga_event forked, joined;",
        }
        local left, gathered = windows.events(g), chunks.events(g)
        if config.sync_batchnorm then
            ranks[#ranks + 1] = "size_t statistics_bytes;         /* statistics of batchnorm, of all ranks */"
        end
        if left > 0 then ranks[#ranks + 1] = ("ga_event left[%d]; /* a bucket has left its window */"):format(left) end
        if gathered > 0 then
            ranks[#ranks + 1] = ("ga_event gathered[%d]; /* a chunk is in its window */"):format(gathered)
        end
        table.move(ranks, 1, #ranks, #list + 1, list)
    end
    return lines(list)
end

--- The arguments of main.c and the README.
function cuda_files.main(config) return { device = true, parallel = config.mode.ranks or false } end

--- More arguments of model.h.
function cuda_files.header(g, config, facts, sweeps)
    local names = ordered.collect(device_arenas(facts), function(a) return a.name:upper() end)
    return ordered.copy(cuda_files.main(config), {
        device_arenas = text.block(table.concat(names, ",\n") .. ",\nDEVICE_ARENAS"),
        graphs = text.block(table.concat(graphs.names(g), ",\n") .. ",\nGRAPHS"),
        step_fields = cuda_step.block(g, config, sweeps), device_fields = model_fields(g, config) })
end

--- More lines of model.h's sizes.
function cuda_files.sizes(config, context)
    local twins = #hopper.of(context.kernels)
    return { ("KERNELS = %d, /* in kernels.cu */"):format(#cuda_step.distinct(context.kernels)),
        ("LONGEST = %d, /* micro-steps of the longest cycle */"):format(config.largest),
        twins > 0 and ("TWINS = %d, /* kernels with another one for sm_90a */"):format(twins) or nil,
        twins > 0 and ("PARTS_BYTES = %d, /* of parts of their results */")
            :format(hopper.parts_bytes(context.kernels)) or nil }
end

--- More arguments of model.c.
function cuda_files.model(config, facts)
    local sizes = ordered.collect(device_arenas(facts), function(a)
        return ("[%s] = %d,"):format(a.name:upper(), a.sharded and 0 or a.bytes)
    end)
    return ordered.copy(cuda_files.main(config), { device_arenas = lines(sizes) })
end

--- More constants of model.c: { name, value }. ARCH is the least compute capability.
function cuda_files.constants(config, context)
    local least = config.arch or 0
    for _, kernel in ipairs(context.kernels) do least = math.max(least, kernel.launch.arch or 0) end
    return { { "ARCH", least } }
end

--- More assignments of model.c's place().
function cuda_files.flat_places(g)
    local list = { not g.sharded.parameters and "m->device_w = m->device_memory[DEVICE_PARAMETERS];" or nil }
    if not g.sharded.gradients then list[#list + 1] = "m->device_g = m->device_memory[DEVICE_GRADIENTS];" end
    if g.residues then list[#list + 1] = "m->device_residue = m->device_memory[DEVICE_RESIDUES];" end
    for _, name in ipairs(g.sharded.state and {} or g.state_names) do
        local filed = g.state_file and g.states:get(name).dense        -- it has memory when its file is open
        list[#list + 1] = not filed and ("m->device_state_%s = m->device_memory[DEVICE_STATE_%s];"):format(name,
            name:upper()) or nil
    end
    return list
end

--- The line that keeps which kernels of products were chosen, by their hash.
function cuda_files.saved(g)
    return #hopper.of_graph(g) > 0
        and 'snprintf(s.tuning_sha256, sizeof s.tuning_sha256, "%s", m->twins.sha256);' or nil
end

--- Libraries and further dependencies in the Makefile.
function cuda_files.makefile()
    return { device = true, libs = text.block(" -ldl") }
end

local DEVICE = { "device/device", "device/device_cache", "device/device_kernels", "device/kernel_parts",
    "device/tuning", "device/twins", "files/sha256" }

--- Further parts of the runtime that the program links.
function cuda_files.runtime(config)
    local list = ordered.copy(DEVICE)
    if config.mode.ranks then list[#list + 1] = "device/device_nccl" end
    return list
end

--- The implementations of comm.h that the program can be built with.
function cuda_files.engines(config)
    return config.mode.ranks and { "self", "mpi", "nccl" } or { "self" }
end

--- Whether a header of the runtime belongs to the program.
function cuda_files.wants_header(name)
    return not name:match("collect")
end

return cuda_files
