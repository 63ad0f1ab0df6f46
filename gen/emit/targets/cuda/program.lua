-- cuda_program: what the files around the step (model, main, Makefile) say more or otherwise for a
-- program with a device. For the C target the same functions give "nothing".
-- Invariant: every template argument made here is there for both targets.
local cuda_step = require "emit.targets.cuda.step"
local gradients = require "emit.program.gradients"
local ordered = require "base.ordered"
local text = require "base.text"

local cuda_program = {}

local function lines(list) return text.block(table.concat(list, "\n")) end

local function has_device(config) return config.target == "cuda" end
local function has_nccl(config) return has_device(config) and config.parallel ~= "none" end

local function device_arenas(facts)
    return ordered.collect(facts.arenas, function(a) return a.memory == "device" and a or nil end)
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
        "int slot;                   /* of the ring, for the next cycle */",
        "bool ahead;                 /* its batches were sent during the last one */",
        "bool eager;                 /* kernel by kernel, without graphs */",
    }
    table.move(common, 1, #common, #list + 1, list)
    if has_nccl(config) then
        local ranks = {
            "ga_nccl *nccl;",
            "ga_cuda_stream reducing;         /* sums over the ranks beside the backward pass */",
            "ga_event forked, joined;",
            "int64_t small_sums;         /* the small ones among the sums over the ranks */",
        }
        table.move(ranks, 1, #ranks, #list + 1, list)
    end
    return lines(list)
end

--- More arguments of model.h.
function cuda_program.header(g, config, facts, context, sweeps)
    local nothing = text.block("")
    local more = { device = has_device(config), parallel = has_nccl(config), device_arenas = nothing,
        step_fields = nothing, device_fields = nothing, graphs = nothing,
        small = text.block(cuda_step.SMALL) }
    if not more.device then return more end
    local names = ordered.collect(device_arenas(facts), function(a) return a.name:upper() end)
    more.device_arenas = text.block(table.concat(names, ",\n") .. ",\nDEVICE_ARENAS")
    more.graphs = text.block(table.concat(cuda_step.graphs(g), ",\n") .. ",\nGRAPHS")
    more.step_fields = cuda_step.block(g, config, sweeps)
    more.device_fields = model_fields(g, config)
    return more
end

--- More lines of model.h's sizes.
function cuda_program.sizes(config, context)
    if not has_device(config) then return {} end
    return { ("KERNELS = %d, /* in kernels.cu */"):format(#context.kernels),
        ("LONGEST = %d, /* micro-steps of the longest cycle */"):format(config.largest) }
end

--- More arguments of model.c.
function cuda_program.model(config, facts)
    local sizes = ordered.collect(device_arenas(facts), function(a)
        return ("[%s] = %d,"):format(a.name:upper(), a.bytes)
    end)
    return { device = has_device(config), parallel = has_nccl(config), device_arenas = lines(sizes),
        target = text.ident(config.target) }
end

--- More assignments of model.c's place().
function cuda_program.flat(g, config)
    if not has_device(config) then return {} end
    local list = { "m->device_w = m->device_memory[DEVICE_PARAMETERS];",
        "m->device_g = m->device_memory[DEVICE_GRADIENTS];" }
    if g.residues then list[3] = "m->device_residue = m->device_memory[DEVICE_RESIDUES];" end
    for _, name in ipairs(g.state_names) do
        list[#list + 1] = ("m->device_state_%s = m->device_memory[DEVICE_STATE_%s];"):format(name, name:upper())
    end
    return list
end

--- More arguments of main.c.
function cuda_program.main(config)
    return { device = has_device(config), parallel = has_nccl(config) }
end

--- What the Makefile links beside the C files, and the engine of the ranks.
function cuda_program.makefile(config)
    if not has_device(config) then
        return { device = false, libs = text.block(""),
            comm = text.ident(config.parallel == "none" and "self" or "mpi") }
    end
    return { device = true, libs = text.block(" -ldl"),
        comm = text.ident(config.parallel == "none" and "self" or "nccl") }
end

-- Parts of the runtime that only one target has.
local ONLY_C = { "base/team" }
local ONLY_DEVICE = { "device/device", "device/device_cache", "device/device_kernels", "files/sha256" }
local ONLY_NCCL = { "device/device_nccl", "ranks/rendezvous" }

--- The parts of the runtime that a program is linked with (`common` is for all), the engines of
--- comm.h apart.
function cuda_program.runtime(config, common)
    local list = ordered.collect(common, function(name)
        return not (has_device(config) and ordered.find(ONLY_C, name)) and name or nil
    end)
    if has_device(config) then table.move(ONLY_DEVICE, 1, #ONLY_DEVICE, #list + 1, list) end
    if has_nccl(config) then table.move(ONLY_NCCL, 1, #ONLY_NCCL, #list + 1, list) end
    return list
end

--- The engines of comm.h that `make COMM=` chooses from.
function cuda_program.engines(config)
    if not has_device(config) then return { "ranks/comm_self", "ranks/comm_mpi" } end
    return has_nccl(config) and { "ranks/comm_self", "ranks/comm_mpi", "ranks/comm_nccl" } or { "ranks/comm_self" }
end

--- Whether a header of the runtime belongs to the program.
function cuda_program.wants_header(config, name)
    local half = name:match("(b?f16)%.h$")
    if half then return half == gradients.half_of(config) end
    if has_device(config) then return not (name:match("team") or name:match("collect")) end
    return not (name:match("device") or name:match("cuda") or name:match("nccl")
        or name:match("rendezvous") or name:match("sha256"))
end

return cuda_program
